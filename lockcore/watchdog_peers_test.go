package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// docs/guarantee-tests.md lists the mistakes of other libraries that the tests TestPeer_ repeat. The
// tests of this file repeat those in renewing a lease.

// peers runs test in a bubble, with two Lockers. The connections of the first one have faults.
func peers(t *testing.T, test func(t *testing.T, p *peerPair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &peerPair{world: newWorld(t)}
		p.T = t
		l, faults, count := p.Locker(lockcore.Options{})
		p.a, p.faults, p.sent = l, faults, count
		p.b, _, _ = p.Locker(lockcore.Options{})
		client := p.client(faults, count)
		for _, s := range wire.Scripts() { // shows the names of the scripts to the faults and the counter
			_ = client.ScriptLoad(t.Context(), s.Text)
		}
		count.Reset()
		test(t, p)
	})
}

// The client of etcd counts a lease from the reply to its keep-alive. So the client's lease ends
// later than the server's, by up to the time of the reply on the network (client/v3/lease.go,
// deadlineLoop). The same was proposed for node-redlock, and not merged (#167). Here a lease counts
// from the time at which its command was sent.
// Shows: I4
func TestPeer_etcdDeadlineFromTheReply(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.Must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context()) // opens the connection, because a dial would fail
		p.faults.SilenceReplies()
		time.AfterFunc(900*time.Millisecond, p.faults.Heal)
		le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second}))
		<-le.Context().Done()
		if left := p.Left(p.b, "k"); left < 500*time.Millisecond {
			t.Errorf("granted by a late reply: canceled %v before the end of the lease, want a tenth of it", left)
		}
		_ = le.Release(t.Context())

		le = p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(12 * time.Second)
		before := p.sent.Count("renew")
		p.faults.SilenceReplies()
		for p.sent.Count("renew") == before {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(4500 * time.Millisecond)
		p.faults.Heal()
		time.Sleep(time.Millisecond)
		p.faults.Silence()
		<-le.Context().Done()
		if left := p.Left(p.b, "k"); left < 3*time.Second {
			t.Errorf("renewed by a late reply: canceled %v before the end of the lease, want a tenth of it", left)
		}
		p.faults.Heal()
		_ = le.Release(t.Context())
	})
}

// Redisson 3.14.0 (#3194) and 3.12.1: renewals end after a reconnect. Here they continue.
func TestPeer_redissonWatchdogAfterReconnect(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 100 {
			time.Sleep(7 * time.Second)
			p.faults.Cut()
		}
		p.stillHeld(le)
	})
}

// Redisson 3.44.0, Consul #912, python-redis-lock and ShedLock's KeepAliveLockProvider: one failed
// renewal ends all renewals. Here they continue.
func TestPeer_redissonWatchdogAfterOneError(t *testing.T) {
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script", "NOPERM this user has no permissions", "ERR unknown"} {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
			for range 5 {
				p.Memory.Redis.SetError(text)
				time.Sleep(12 * time.Second)
				p.Memory.Redis.SetError("")
				time.Sleep(12 * time.Second)
			}
			p.stillHeld(le)
		})
	}
}

// dynamolock #280: after a heartbeat without a reply, the next one is refused, and the lock is
// lost. Here the lease is renewed again.
func TestPeer_dynamolockAmbiguousHeartbeat(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
			f := plant(p.faults, faulty.Script("renew"))
			time.Sleep(15 * time.Second)
			if !struckBy(f) {
				t.Errorf("inconclusive: %s: the fault did not happen", name)
			}
			f.Deliver()
			time.Sleep(time.Minute)
			p.stillHeld(le)
		})
	}
}

// Redisson 3.46.0: a reentrant lock is no longer renewed after the inner run has returned. Here it
// is.
func TestPeer_redissonWatchdogAfterReentry(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		inner := p.Must(p.a.AcquireFixed(le.Context(), "k", lockcore.Terms{Lease: time.Second}))
		time.Sleep(time.Minute)
		_ = inner.Release(t.Context())
		time.Sleep(time.Hour)
		p.stillHeld(le)
	})
}

// Redisson 3.48.0: a promoted replica does not know the scripts, and renewals fail. Here a script
// is sent in full if the server does not know it.
// Shows: L8
func TestPeer_redissonForgottenScripts(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 200 {
			time.Sleep(5 * time.Second)
			if left := p.Left(p.b, "k"); left < 19*time.Second {
				t.Fatalf("the remaining lease is %v: it was not renewed in the same round", left)
			}
			if err := p.Redis.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		p.stillHeld(le)
	})
}

// Redisson 4.4.0 and #7272: a renewal under way at the release extends that lock or the lock of the
// next holder, and renewals continue. Here a late renewal changes nothing, and no more follow.
func TestPeer_redissonRenewalAfterUnlock(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		held := p.faults.Hold(faulty.Script("renew"))
		<-held.Struck()
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next := p.Must(p.b.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 20 * time.Second}))
		time.Sleep(10 * time.Second)
		held.Deliver()
		time.Sleep(time.Second)
		if left := p.Left(p.b, "k"); left > 9*time.Second {
			t.Errorf("a late renewal of the previous hold extended the lease: %v left", left)
		}
		_ = next.Release(t.Context())
		p.sent.Reset()
		time.Sleep(time.Hour)
		if n := p.sent.Count("renew"); n > 0 {
			t.Errorf("%d renewals of a released key", n)
		}
	})
}

// Redisson 3.16.3: an interrupted tryLock that is granted at that moment is renewed forever. Here
// such a grant is withdrawn.
// Shows: R1
func TestPeer_redissonInterruptedIsRenewed(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.Must(p.a.Acquire(t.Context(), "k", noWait)).Release(t.Context())
		p.faults.Delay(100 * time.Millisecond)
		for after := range 25 { // at each moment of the round trip
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*10*time.Millisecond)
			if le, err := p.a.Acquire(ctx, "k", lockcore.Terms{}); err == nil {
				_ = le.Release(t.Context())
			}
			cancel()
			time.Sleep(time.Second)
			_ = p.Must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
		}
		for n := int64(1); ; n++ { // and at each call of its Err, so also between the reply of the grant and its use
			inner, cancel := context.WithCancel(t.Context())
			ctx := &canceledAtLook{Context: inner, cancel: cancel, n: n}
			le, err := p.a.Acquire(ctx, "k", lockcore.Terms{})
			last := ctx.looks.Load() < n
			if err == nil {
				_ = le.Release(t.Context())
			}
			cancel()
			time.Sleep(time.Second)
			_ = p.Must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
			if last {
				break
			}
		}
		p.sent.Reset()
		time.Sleep(time.Hour)
		if n := p.sent.Count("renew"); n > 0 {
			t.Errorf("%d renewals without a hold", n)
		}
	})
}

// canceledAtLook is a ctx that the n-th call of its Err cancels before that call returns.
type canceledAtLook struct {
	context.Context //nolint:containedctx // canceledAtLook is a ctx itself
	cancel          func()
	n               int64
	looks           atomic.Int64
}

func (c *canceledAtLook) Err() error {
	if c.looks.Add(1) == c.n {
		c.cancel()
	}
	return c.Context.Err()
}

// RedLock.net #68: 35 locks of finished calls, which had not released them, were renewed, one for
// almost a week. Redisson #1626 has such a lock, and Redisson #2254 and python-redis-lock #106
// request a bound. Here MaxHold is one.
// Shows: L2
func TestPeer_redlockNetOrphansRenewedForAWeek(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{MaxHold: time.Hour}))
		time.Sleep(2 * time.Hour) // and the handler does not read its ctx
		next := p.Must(p.b.Acquire(t.Context(), "k", noWait))
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// Redisson #5115: a worker hangs, and its watchdog continues to renew ("feed the dog"). Here Stall
// ends the hold of a handler that does not call Beat.
// Shows: L3
func TestPeer_redissonFeedTheDog(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Stall: time.Minute}))
		for range 60 {
			time.Sleep(50 * time.Second)
			lockcore.Beat(le.Context())
		}
		if le.Context().Err() != nil {
			t.Error("the hold ended although its handler called Beat")
		}
		time.Sleep(time.Hour)
		next := p.Must(p.b.Acquire(t.Context(), "k", noWait))
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrStalled) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// Redisson #5698: the watchdog renews the nodes of a cluster one after the other, and a slow one
// delays the others. Here batches are sent at the same time.
// Shows: L8
func TestPeer_redissonNodesInTurn(t *testing.T) {
	testlevel.Full(t)
	peers(t, func(t *testing.T, p *peerPair) {
		heard := new(passes)
		l, faults, _ := p.Locker(lockcore.Options{Observer: heard})
		for i := range 2700 { // more than half are due in the first pass, which is more than a batch
			le := p.Must(l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{}))
			defer func() {
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(8 * time.Second)
		faults.Silence()
		unanswered := func() int { _, sum, _ := heard.sum(); return sum.Failed }
		for unanswered() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // a batch on a new connection may time out later than another one
		together := map[int64]int{} // leases without a reply, by the time at which their batch began
		heard.mu.Lock()
		for _, p := range heard.all {
			together[p.end.Add(-p.Took).UnixNano()] += p.Failed
		}
		heard.mu.Unlock()
		if n := slices.Max(slices.Collect(maps.Values(together))); n <= 1000 {
			t.Errorf("at most %d leases were renewed at the same time, which is one batch", n)
		}
		faults.Heal()
		time.Sleep(15 * time.Second)
	})
}
