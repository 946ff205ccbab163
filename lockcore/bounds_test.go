package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A late duplicate of an acquire arrives after its request has ended, and grants nothing. That
// holds also if the hash was about to expire when the id was remembered, or if a record was kept
// for only a second.
// Shows: L13
func TestLateDuplicateAfterShortTTL(t *testing.T) {
	free := func(w *world, kind event.Kind) {
		b, _, _ := w.Locker(lockcore.Options{})
		time.Sleep(time.Second)
		if h, err := b.Inspect(w.T.Context(), kind, "k"); err != nil || h.State != lockcore.StateFree {
			w.T.Errorf("a late duplicate was granted: %+v, %v", h, err)
		}
	}
	t.Run("end of the hash", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, faults, _ := w.Locker(lockcore.Options{})
			b, _, _ := w.Locker(lockcore.Options{})
			_ = w.Must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
			_ = w.Must(b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
			time.Sleep(time.Minute - 150*time.Millisecond)
			late := faults.Hold(faulty.Script("acquire"))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if le, err := a.Acquire(ctx, "k", noWait); err == nil {
				t.Fatalf("inconclusive: granted %v", le.Token())
			}
			time.Sleep(2 * time.Second)
			late.Deliver()
			free(w, event.KindExclusive)
		})
	})
	t.Run("short record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, faults, _ := w.Locker(lockcore.Options{})
			_ = w.Must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
			late := faults.Hold(faulty.Script("acquire"))
			le, _, err := a.Claim(t.Context(), "k", lockcore.Claim{Keep: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if err := le.Complete(t.Context(), []byte("r"), time.Second); err != nil {
				t.Fatal(err)
			}
			if _, rec, err := inspectRecord(t.Context(), a, "k"); err != nil || rec == nil || string(rec.Data) != "r" {
				t.Errorf("the record is %v, %v", rec, err)
			}
			time.Sleep(2 * time.Second)
			late.Deliver()
			free(w, event.KindOnce)
		})
	})
}

// A waiter is in the queue with 1,000 dead members before it. It gets the free key with its next
// request, within 2 s.
// Shows: W6
func TestWaitBehindDeadMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", noWait))
		got := make(chan time.Time)
		go func() {
			le := w.Must(b.Acquire(t.Context(), "k", long))
			got <- time.Now()
			_ = le.Release(t.Context())
		}()
		time.Sleep(time.Second)
		queue := storedNames(event.KindExclusive, "k")[1]
		for i, m := range deadMembers(1000) {
			if err := w.Redis.ZAdd(t.Context(), queue, redis.Z{Score: float64(i), Member: m}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		_ = le.Release(t.Context())
		d := (<-got).Sub(start)
		if n := w.Redis.ZCard(t.Context(), queue).Val(); n < 500 {
			t.Errorf("inconclusive: %d dead members are left", n)
		}
		if d > 2*time.Second {
			t.Errorf("a waiter behind dead members got the free key after %v, want at most 2s", d)
		}
	})
}

// A key has an absurd end of its lease, of any form. A waiter sends requests at a bounded rate.
// Shows: X1
func TestAbsurdEndRate(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	l, _, count := w.Locker(lockcore.Options{})
	_ = w.Must(l.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
	now := w.Redis.Time(t.Context()).Val().UnixMicro()
	for _, state := range []string{"h", "r", "p"} {
		for _, x := range []string{fmt.Sprint(now + 9_300_000_000_000_000), fmt.Sprint(int64(math.MaxInt64)), "inf", "1e300", "nan", "-1e300", "0x10", ""} {
			for _, d := range []string{"9400000000000000", "inf", "1e300", "-7"} {
				key := "k" + state + x + d
				hash := storedNames(event.KindExclusive, key)[0]
				if err := w.Redis.HSet(t.Context(), hash, "s", state, "h", strings.Repeat("Q", 26), "o", strings.Repeat("Q", 26), "t", now, "x", x, "d", d).Err(); err != nil {
					t.Fatal(err)
				}
				count.Reset()
				const wait = 20 * time.Millisecond
				start := time.Now()
				le, err := l.Acquire(t.Context(), key, lockcore.Terms{Wait: wait})
				limit := 2 + int((time.Since(start)+wait)/(10*time.Millisecond))
				if n := len(count.Commands()); n > limit {
					t.Errorf("state %s with x %q and d %q: %d commands in %v, want at most %d", state, x, d, n, time.Since(start), limit)
				}
				switch {
				case le != nil:
					_ = le.Release(t.Context())
				case !errors.Is(err, lockcore.ErrBusy) && !errors.Is(err, lockcore.ErrRecord):
					t.Errorf("state %s with x %q and d %q: %v", state, x, d, err)
				}
				if busy, ok := errors.AsType[*lockcore.BusyError](err); ok && (busy.Remaining < 0 || busy.Remaining > 25*time.Hour) {
					t.Errorf("state %s with x %q and d %q: Remaining is %v", state, x, d, busy.Remaining)
				}
			}
		}
	}
}

// scripted is a client that gives every script the same reply.
type scripted struct {
	reply []any
	runs  atomic.Int64
	sha   string
}

func (s *scripted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scripted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*redis.Cmd); ok && cmd.Name() == "evalsha" {
			if cmd.Args()[1] == s.sha {
				s.runs.Add(1)
			}
			c.SetVal(s.reply)
			return nil
		}
		return next(ctx, cmd)
	}
}

// A request that no notification has caused is sent at least 10 ms after the previous one, whatever
// the reply to that one.
// Shows: X1
func TestReplyRate(t *testing.T) {
	for name, reply := range map[string][]any{
		"busy for the longest time": {int64(0), int64(math.MaxInt64), int64(math.MaxInt64), "", int64(math.MaxInt64), ""},
		"busy for 9.3e15 µs":        {int64(0), int64(9_300_000_000_000_000), int64(0), "", int64(0), ""},
		"busy for no time":          {int64(0), int64(0), int64(0), "", int64(0), ""},
		"over":                      {int64(5)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{reply: reply, sha: fmt.Sprint(wire.Acquire.SHA[1])}
			m := redistest.Bubble(t)
			rdb := m.Client(t)
			rdb.AddHook(s)
			l := lockerOn(t, inWrapper(rdb), lockcore.Options{})
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever})
			if n, limit := s.runs.Load(), 3+int64(time.Since(start)/(10*time.Millisecond)); n > limit {
				t.Errorf("%d requests in %v, want at most %d", n, time.Since(start), limit)
			}
			if busy, ok := errors.AsType[*lockcore.BusyError](err); ok && (busy.Remaining < 0 || busy.HeldFor < 0) {
				t.Errorf("HeldFor is %v, Remaining is %v", busy.HeldFor, busy.Remaining)
			}
		})
	}
}

// A key has a field that cannot be read. Each operation returns ErrRecord at once, which names the
// key and the field, and writes nothing. Clear repairs the key.
// Shows: X2
func TestUnreadableKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind         event.Kind
		state, field string
		value        string
		others       []string
	}{
		{kind: event.KindExclusive, field: "f", value: "9007199254740992"},
		{kind: event.KindExclusive, field: "t", value: "1e300"},
		{kind: event.KindExclusive, field: "x", value: "abc", others: []string{"s", "h"}},
		{kind: event.KindOnce, field: "n", value: "nan", others: []string{"s", "d"}},
		{kind: event.KindOnce, field: "n", value: "-7"},
		{kind: event.KindOnce, field: "d", value: "", others: []string{"s", "r"}},
	} {
		t.Run(fmt.Sprintf("%s %s %s", test.kind, test.field, test.value), func(t *testing.T) {
			w := realWorld(t)
			l, _, count := w.Locker(lockcore.Options{})
			ask := func(wait time.Duration) (*lockcore.Lease, error) {
				if test.kind == event.KindExclusive {
					return l.Acquire(t.Context(), "key", lockcore.Terms{Wait: wait})
				}
				le, _, err := l.Claim(t.Context(), "key", lockcore.Claim{Terms: lockcore.Terms{Wait: wait}})
				return le, err
			}
			hash := storedNames(test.kind, "key")[0]
			set := append([]string{test.field, test.value}, test.others...)
			if err := errors.Join(w.Redis.HSet(t.Context(), hash, set).Err(), w.Redis.PExpire(t.Context(), hash, 30*time.Second).Err()); err != nil {
				t.Fatal(err)
			}
			unreadable := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, lockcore.ErrRecord) || !errors.Is(err, lockcore.ErrNotRun) || errors.Is(err, lockcore.ErrUnavailable) ||
					!strings.Contains(fmt.Sprint(err), hash) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("field %q", test.field)) {
					t.Errorf("%s: %v, want ErrRecord that names the key and its field", what, err)
				}
			}
			_, err := ask(lockcore.Forever) // this loads the script
			unreadable("acquire", err)
			count.Reset()
			_, err = ask(lockcore.Forever)
			unreadable("acquire", err)
			if got := count.Commands(); len(got) != 1 {
				t.Errorf("it sent %v, want one request", got)
			}
			_, err = l.Inspect(t.Context(), test.kind, "key")
			unreadable("inspect", err)
			if test.kind == event.KindOnce {
				_, _, err = inspectRecord(t.Context(), l, "key")
				unreadable("inspect the record", err)
			}
			if ttl := w.Redis.PTTL(t.Context(), hash).Val(); ttl > 30*time.Second || ttl < 0 {
				t.Errorf("the hash expires in %v, want at most 30s", ttl)
			}
			for _, err := range doctor.List(t.Context(), l, doctor.ListOptions{}) {
				if err != nil {
					t.Errorf("list: %v", err)
				}
			}
			if err := l.Clear(t.Context(), test.kind, "key"); err != nil {
				t.Errorf("clear: %v", err)
			}
			le, err := ask(lockcore.NoWait)
			if err != nil {
				t.Fatalf("after clear: %v", err)
			}
			if le.Abandoned() || le.Attempt() != 1 {
				t.Errorf("after clear: abandoned %v, attempt %d", le.Abandoned(), le.Attempt())
			}
			if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Clear of an unreadable key notifies its holder: the lease is lost at once, not at its end.
func TestClearTellsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		operator, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour}))
		time.Sleep(2 * time.Second) // the Locker has subscribed by then
		hash := storedNames(event.KindExclusive, "k")[0]
		if err := errors.Join(redistest.Unfold(t.Context(), w.Redis, hash), w.Redis.HSet(t.Context(), hash, "x", "junk").Err()); err != nil {
			t.Fatal(err)
		}
		if err := operator.Clear(t.Context(), event.KindExclusive, "k"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-le.Context().Done()
		if d, err := time.Since(start), context.Cause(le.Context()); d > time.Second || !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("%v, %v after Clear", err, d)
		}
		_ = le.Release(t.Context())
	})
}

// deadMembers returns members of a queue whose processes are not subscribed.
func deadMembers(n int) []string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("%026d%026d", i, i)
	}
	return members
}
