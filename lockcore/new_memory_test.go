package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func memoryLocker(t *testing.T, o lockcore.MemoryOptions) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.NewMemory(o)
	ok(t, err)
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A Locker in memory renews a key, hands it off in order, and revokes it.
// Shows: M3
func TestNewMemoryExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		first, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		time.Sleep(10 * time.Minute) // 20 times the lease
		ok(t, context.Cause(first.Context()))
		_, err = l.Acquire(t.Context(), "k", noWait)
		if busy, is := errors.AsType[*lockcore.BusyError](err); !is || !busy.Local || busy.Holder.Locker != l.ID() {
			t.Errorf("a second call: %v, want a BusyError that names this Locker", err)
		}
		got := make(chan *lockcore.Lease)
		for range 3 {
			go func() {
				le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
				if err != nil {
					t.Error(err)
				}
				got <- le
			}()
			synctest.Wait()
		}
		last := first
		for range 3 {
			ok(t, last.Release(t.Context()))
			next := <-got
			if next.Token() <= last.Token() {
				t.Errorf("token %d after %d", next.Token(), last.Token())
			}
			last = next
		}
		ok(t, l.Revoke(t.Context(), event.KindExclusive, "k"))
		<-last.Context().Done()
		if err := last.Release(t.Context()); !errors.Is(err, lockcore.ErrRevoked) {
			t.Errorf("Release: %v, want ErrRevoked", err)
		}
	})
}

// A once key in memory is replayed, abandoned, taken over, cleared and forgotten.
// Shows: M3
func TestNewMemoryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{})
		ok(t, err)
		ok(t, le.Abandon(t.Context()))
		if _, _, err := l.Claim(t.Context(), "k", lockcore.Claim{AtMostOnce: true}); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("AtMostOnce of an abandoned key: %v", err)
		}
		le, _, err = l.Claim(t.Context(), "k", lockcore.Claim{})
		ok(t, err)
		if le.Attempt() != 2 || !le.Abandoned() {
			t.Errorf("attempt %d, takeover %v; want 2, true", le.Attempt(), le.Abandoned())
		}
		ok(t, le.Complete(t.Context(), []byte("r"), time.Hour))
		_, rec, err := l.Claim(t.Context(), "k", lockcore.Claim{})
		if err != nil || rec == nil || string(rec.Data) != "r" || rec.Attempt != 2 {
			t.Errorf("replay: %+v, %v", rec, err)
		}
		time.Sleep(time.Hour)
		h, err := l.Inspect(t.Context(), event.KindOnce, "k")
		if err != nil || h.State != lockcore.StateFree {
			t.Errorf("an hour later: %+v, %v", h, err)
		}
	})
}

// A backend in memory has reached MaxBytes. A new key is refused. Held keys are renewed and can be
// released.
// Shows: M6
func TestNewMemoryMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{MaxBytes: 4 << 10})
		var held []*lockcore.Lease
		var full error
		for i := 0; full == nil && i < 100; i++ {
			le, err := l.Acquire(t.Context(), fmt.Sprint(i), noWait)
			if full = err; err == nil {
				held = append(held, le)
			}
		}
		if !errors.Is(full, lockcore.ErrUnavailable) || !strings.Contains(full.Error(), "Options.MaxBytes is 4096") || len(held) == 0 {
			t.Errorf("after %d keys: %v, want ErrUnavailable that names MaxBytes", len(held), full)
		}
		time.Sleep(10 * time.Minute) // they are renewed
		for _, le := range held {
			ok(t, le.Release(t.Context()))
		}
	})
}

// A record that does not fit is reported, and the next run takes the key over.
// Shows: M7
func TestNewMemoryRecordTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := new(locktest.Recorder)
		l := memoryLocker(t, lockcore.MemoryOptions{MaxBytes: 4 << 10, Observer: heard})
		le, _, err := l.Claim(t.Context(), "once", lockcore.Claim{})
		ok(t, err)
		ok(t, le.Complete(t.Context(), make([]byte, 64<<10), time.Hour))
		eventually(t, "it is reported", func() bool { return len(locktest.EventsOf[event.CompletionFailed](heard)) > 0 })
		failed := locktest.EventsOf[event.CompletionFailed](heard)
		if len(failed) != 1 || !strings.Contains(fmt.Sprint(failed), "Options.MaxBytes is 4096") {
			t.Errorf("CompletionFailed %v, want it once with an error that names MaxBytes", failed)
		}
		_, _, err = l.Claim(t.Context(), "once", lockcore.Claim{AtMostOnce: true, Terms: lockcore.Terms{Wait: time.Minute}})
		if !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("at most once: %v, want ErrAbandoned", err)
		}
		le, _, err = l.Claim(t.Context(), "once", lockcore.Claim{})
		ok(t, err)
		if le.Attempt() != 2 || !le.Abandoned() {
			t.Errorf("attempt %d, takeover %v; want 2, true", le.Attempt(), le.Abandoned())
		}
		ok(t, le.Release(t.Context()))
	})
}

// One minute after their release exclusive keys use no memory, so new ones fit.
// Shows: M6
func TestNewMemoryMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{MaxBytes: 64 << 10})
		use := func(n int) error {
			le, err := l.Acquire(t.Context(), fmt.Sprint("account:", n), noWait)
			if err != nil {
				return err
			}
			return le.Release(t.Context())
		}
		n := 0
		for ; n < 1000 && use(n) == nil; n++ {
		}
		t.Logf("%d keys in 64 KiB", n)
		time.Sleep(61 * time.Second)
		if err := use(n); err != nil {
			t.Errorf("a new key after a minute: %v", err)
		}
	})
}

// NewMemory returns an error for options that are not valid. String names the backend.
func TestNewMemoryOptions(t *testing.T) {
	for want, o := range map[string]lockcore.MemoryOptions{
		"Terms.Lease is 1ns": {Terms: lockcore.Terms{Lease: 1}}, "MaxBytes is 7": {MaxBytes: 7}, "MaxBytes is -1": {MaxBytes: -1},
	} {
		if _, err := lockcore.NewMemory(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewMemory(%+v): %v, want %q", o, err, want)
		}
	}
	l := memoryLocker(t, lockcore.MemoryOptions{})
	if s := l.String(); !strings.Contains(s, "this process only") || !strings.Contains(s, l.ID()) {
		t.Error(s)
	}
}

// The configuration of the example gives a Locker in memory or on Redis. Two Lockers on one Redis
// exclude each other, two in memory do not.
// Shows: M4
func TestMemoryOrRedis(t *testing.T) {
	server := miniredis.RunT(t)
	for _, tt := range []struct {
		addr, backend string
		excludes      bool
	}{{"", "memory (this process only)", false}, {server.Addr(), "redis", true}} {
		var locks [2]*lockcore.Locker
		for i := range locks {
			l, closeLocks, err := openLocks(tt.addr)
			ok(t, err)
			t.Cleanup(func() { ok(t, closeLocks(context.Background())) })
			locks[i] = l
		}
		if s := locks[0].String(); !strings.Contains(s, tt.backend) {
			t.Errorf("addr %q: %s, want %q", tt.addr, s, tt.backend)
		}
		lease, err := locks[0].Acquire(t.Context(), "k", noWait)
		ok(t, err)
		other, err := locks[1].Acquire(t.Context(), "k", noWait)
		if errors.Is(err, lockcore.ErrBusy) != tt.excludes {
			t.Errorf("addr %q: a second Locker gets error %v, want busy: %v", tt.addr, err, tt.excludes)
		}
		if err == nil {
			ok(t, other.Release(t.Context()))
		}
		ok(t, lease.Release(t.Context()))
	}
}
