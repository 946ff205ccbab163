package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The reply to a renewal takes longer than a sixth of the lease. It still renews the lease.
// Shows: L7
func TestRenewLateReply(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 6 * time.Second}))
		p.faults.Delay(600 * time.Millisecond) // each way
		time.Sleep(time.Minute)
		p.faults.Heal()
		time.Sleep(time.Second)
		p.stillHeld(le)
	})
}

// A renewal has no reply. After a sixth of the lease a second one is sent. The reply to the first
// arrives after the reply to the second and changes nothing.
// Shows: L7
func TestRenewBeside(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 6 * time.Second}))
		held := p.faults.Hold(faulty.Script("renew"))
		<-held.Struck()
		time.Sleep(900 * time.Millisecond)
		if n := p.sent.Count("renew"); n != 1 {
			t.Errorf("%d renewals within a sixth of the lease, want 1", n)
		}
		time.Sleep(200 * time.Millisecond)
		if n := p.sent.Count("renew"); n != 2 {
			t.Errorf("%d renewals after a sixth of the lease, want 2", n)
		}
		time.Sleep(time.Second)
		left := p.Left(p.b, "k")
		held.Deliver()
		time.Sleep(time.Millisecond)
		if now := p.Left(p.b, "k"); now < left-10*time.Millisecond {
			t.Errorf("the late duplicate of a renewal changed the remaining lease from %v to %v", left, now)
		}
		time.Sleep(time.Minute)
		p.stillHeld(le)
	})
}

// The acquire was slow, so the first renewal is sent early. It and the next two get no reply. The
// network works again before half the lease is over, and a fourth renewal keeps the lease.
// Shows: L7
func TestRenewAfterThreeLost(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		const lease = 6 * time.Second
		other := p.Must(p.a.Acquire(t.Context(), "other", lockcore.Terms{})) // so that there is a connection
		p.faults.Delay(lease / 15)                                           // each way
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: lease}))
		start := time.Now()
		p.faults.Delay(0)
		for range 3 {
			f := p.faults.LoseRequest(faulty.Script("renew"))
			defer f.Remove()
			<-f.Struck()
		}
		if after := time.Since(start); after > lease/2 {
			t.Fatalf("the third renewal was sent %v after the grant", after)
		}
		time.Sleep(time.Minute)
		ok(t, other.Release(t.Context()))
		p.stillHeld(le)
	})
}

// All replies are late, because a process or a server has too much work. Second renewals at most
// double the load, and no lease is lost.
// Shows: L7
func TestRenewOverload(t *testing.T) {
	testlevel.Full(t)
	synctest.Test(t, func(t *testing.T) {
		const periods = 5
		n := testlevel.Pick(t, 0, 2000, 4000) // more than may have a second renewal
		heard := new(passes)
		l, faults, _ := newWorld(t).Locker(lockcore.Options{Observer: heard})
		leases := make([]*lockcore.Lease, n)
		for i := range leases {
			le, err := l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{Lease: 12 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			leases[i] = le
		}
		time.Sleep(8 * time.Second)
		faults.Delay(1100 * time.Millisecond) // a round trip takes longer than a sixth of the lease
		time.Sleep(8 * time.Second)
		_, before, _ := heard.sum()
		time.Sleep(periods * 4 * time.Second)
		_, after, _ := heard.sum()
		if sent := after.Kept + after.Gone + after.Failed - before.Kept - before.Gone - before.Failed; sent > 2*periods*n {
			t.Errorf("%d renewals of %d leases in %d periods", sent, n, periods)
		}
		faults.Delay(0)
		for _, le := range leases {
			if err := le.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Redis does not reply, and more leases are due than can have a second renewal. They are so long
// that a delayed renewal is due together with others. Each ctx still ends before its lease.
func TestRenewOverloadLongLeases(t *testing.T) {
	testlevel.Full(t)
	synctest.Test(t, func(t *testing.T) {
		const n, lease = 2200, 156 * time.Second
		w := newWorld(t)
		dial := w.Options
		w.Options = func() *redis.Options { o := dial(); o.ReadTimeout = -1; return o }
		l, faults, _ := w.Locker(lockcore.Options{})
		leases := make([]*lockcore.Lease, n)
		for i := range leases {
			leases[i] = w.Must(l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{Lease: lease}))
		}
		time.Sleep(lease / 2) // each is renewed once, over connections that are silent afterwards
		start := time.Now()
		faults.Silence()
		for _, le := range leases {
			<-le.Context().Done()
			if d, err := time.Since(start), context.Cause(le.Context()); d >= lease || !errors.Is(err, lockcore.ErrLost) {
				t.Fatalf("%v after %v", err, d)
			}
		}
		faults.Heal()
		for _, le := range leases {
			_ = le.Release(t.Context())
		}
	})
}

// Without replies at most six renewals of a lease are under way, also if many notifications of a
// revocation arrive. None of them revives the lease after it is lost, and Close does not wait for
// them.
// Shows: L7
func TestRenewUnanswered(t *testing.T) {
	const most = 6
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dial := w.Options
		w.Options = func() *redis.Options { o := dial(); o.ReadTimeout = -1; return o }
		l, faults, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(12 * time.Second) // the lease is renewed, so the counter knows the script
		count.Reset()
		var all []*faulty.Fault
		for range most + 1 {
			all = append(all, faults.Hold(faulty.Script("renew")))
		}
		stored := w.Memory.Fields(storedNames(event.KindExclusive, "k")[0])
		for range 30 { // the lease has a length of 30 s
			w.Redis.Publish(t.Context(), "holdfast:2:wake:"+stored["o"], "v"+stored["h"])
			time.Sleep(time.Second)
		}
		if le.Context().Err() == nil {
			t.Fatal("a renewal was sent that got a reply")
		}
		if n := count.Count("renew"); n != most {
			t.Errorf("%d renewals of a lease without a reply, want %d", n, most)
		}
		for _, f := range all[:most] {
			f.Deliver()
		}
		time.Sleep(10 * time.Second)
		if !errors.Is(context.Cause(le.Context()), lockcore.ErrLost) || !errors.Is(le.Release(t.Context()), lockcore.ErrLost) {
			t.Errorf("after the replies: %v", context.Cause(le.Context()))
		}

		le = w.Must(l.Acquire(t.Context(), "k", long))
		<-all[most].Struck()
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		start := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close while a renewal hangs: %v after %v", err, time.Since(start))
		}
		all[most].Deliver()
		next := w.Must(other.Acquire(t.Context(), "k", noWait))
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A key that cannot be read does not end the other leases of the same renewal script. Its own lease
// expires, and RenewFailed names the key and the field.
// Shows: L8
func TestRenewUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { renewUnreadable(t, newWorld(t)) })
}

// TestRenewUnreadableReal is TestRenewUnreadable on a real server, whose scripts report errors in
// another form.
func TestRenewUnreadableReal(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	renewUnreadable(t, realWorld(t))
}

// Another holder has the key meanwhile. A renewal changes nothing, also if the end of that hold is
// later than a lease can last.
func TestRenewLeavesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		hash := storedNames(event.KindExclusive, "k")[0]
		other := []any{"h", strings.Repeat("A", 26), "x", "8000000000000000", "d", "8000000000000000"}
		if err := errors.Join(redistest.Unfold(t.Context(), w.Redis, hash), w.Redis.HSet(t.Context(), hash, other...).Err()); err != nil {
			t.Fatal(err)
		}
		before := w.Redis.HGetAll(t.Context(), hash).Val()
		<-le.Context().Done()
		if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		if after := w.Redis.HGetAll(t.Context(), hash).Val(); !maps.Equal(before, after) {
			t.Errorf("the renewal changed the hash: now %v, before %v", after, before)
		}
		_ = le.Release(t.Context())
	})
}

func renewUnreadable(t *testing.T, w *world) {
	t.Helper()
	hash := func(i int) string { return storedNames(event.KindExclusive, fmt.Sprint(i))[0] }
	bad := map[int]struct {
		do   []any
		said string
	}{
		7:  {[]any{"HSET", hash(7), "x", "abc"}, `field "x"`},
		17: {[]any{"HSET", hash(17), "d", "abc"}, `field "d"`},
		23: {[]any{"HSET", hash(23), "x", "nan"}, `field "x"`},
		31: {[]any{"SET", hash(31), "abc"}, "WRONGTYPE"},
	}
	heard := new(locktest.Recorder)
	l, _, _ := w.Locker(lockcore.Options{Observer: heard, Terms: lockcore.Terms{Lease: 3 * time.Second}})
	leases := make([]*lockcore.Lease, 50)
	for i := range leases {
		leases[i] = w.Must(l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{}))
	}
	for i, b := range bad {
		ok(t, redistest.Unfold(t.Context(), w.Redis, hash(i)))
		if err := w.Redis.Do(t.Context(), b.do...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range bad {
		<-leases[i].Context().Done()
	}
	time.Sleep(2 * time.Second)
	lost := 0
	for i, le := range leases {
		err := context.Cause(le.Context())
		if b, ok := bad[i]; ok {
			if !errors.Is(err, lockcore.ErrLost) {
				t.Errorf("%v: %v", b.do, err)
			}
			if all := fmt.Sprint(locktest.EventsOf[event.RenewFailed](heard)); !strings.Contains(all, b.said) || !strings.Contains(all, hash(i)) {
				t.Errorf("%v: RenewFailed said %s", b.do, all)
			}
		} else if err != nil {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d leases on readable keys were lost", lost, len(leases)-len(bad))
	}
	for i, le := range leases {
		if _, ok := bad[i]; !ok {
			if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	_ = w.Redis.FlushAll(t.Context()).Err() // so that no release is left for the background
	for i := range bad {
		_ = leases[i].Release(t.Context())
	}
}
