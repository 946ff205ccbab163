package lockcore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A call of a process does not overtake an older one, whatever terms both have, and also if the
// older one has a request under way.
// Shows: S3
func TestShareNoOvertaking(t *testing.T) {
	readers := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}}
	for name, c := range map[string]struct{ held, older, later testcall.Call }{
		"a reader and a writer": {readers, testcall.Call{}, readers},
		"light and heavy":       {testcall.Call{Limit: lockcore.Limit{N: 3}}, testcall.Call{Limit: lockcore.Limit{N: 3, Weight: 3}}, testcall.Call{Limit: lockcore.Limit{N: 3}}},
		"equal terms":           {testcall.Call{Limit: lockcore.Limit{N: 1}}, testcall.Call{Limit: lockcore.Limit{N: 1}}, testcall.Call{Limit: lockcore.Limit{N: 1}}},
	} {
		for _, delay := range []time.Duration{0, 500 * time.Microsecond} {
			t.Run(name+", "+delay.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					l, f, _ := w.Locker(lockcore.Options{})
					_ = shareOf(t, l, c.held).Release(t.Context()) // opens the subscription
					f.Delay(delay)
					held := shareOf(t, l, c.held)
					order := make(chan string, 2)
					call := func(name string, terms testcall.Call, d time.Duration) {
						terms.Wait = lockcore.Forever
						le := shareOf(t, l, terms)
						order <- name
						time.Sleep(d)
						_ = le.Release(context.WithoutCancel(t.Context()))
					}
					var all sync.WaitGroup
					all.Go(func() { call("older", c.older, 0) })
					time.Sleep(200 * time.Microsecond)
					all.Go(func() { call("later", c.later, time.Second) })
					time.Sleep(300 * time.Microsecond)
					_ = held.Release(t.Context())
					if first := <-order; first != "older" {
						t.Errorf("the %s call was first", first)
					}
					all.Wait()
				})
			})
		}
	}
}

// A permit that is older than a batch is released to the backend, where another process waits for
// it.
// Shows: S3
func TestShareHandOffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		one := testcall.Call{Limit: lockcore.Limit{N: 1}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
		_ = shareOf(t, l, one).Release(t.Context())
		held := shareOf(t, l, one)
		order := make(chan string, 3)
		var all sync.WaitGroup
		for _, c := range []struct {
			name string
			l    *lockcore.Locker
		}{{"other", other}, {"own", l}, {"own", l}} {
			all.Go(func() {
				le := shareOf(t, c.l, one)
				order <- c.name
				_ = le.Release(t.Context())
			})
			time.Sleep(2 * time.Millisecond)
		}
		_ = held.Release(t.Context())
		if first := <-order; first != "other" {
			t.Error("a call of the same process got the key before the call of the other process")
		}
		all.Wait()
	})
}

// A share is not handed off to a call whose limit the weights of the other shares exceed.
func TestShareHandOffBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		small := testcall.Call{Limit: lockcore.Limit{N: 2}, Terms: lockcore.Terms{Wait: time.Minute}}
		_ = shareOf(t, l, small).Release(t.Context())
		held := shareOf(t, l, small)
		big := shareOf(t, other, testcall.Call{Limit: lockcore.Limit{N: 10, Weight: 9}})
		got := make(chan *lockcore.Lease, 2)
		for range 2 {
			go func() { got <- shareOf(t, l, small) }()
			time.Sleep(time.Millisecond)
		}
		_ = held.Release(t.Context())
		select {
		case <-got:
			t.Error("a call with limit 2 was granted while another process has weight 9")
		case <-time.After(time.Second):
		}
		_ = big.Release(t.Context())
		for range 2 {
			_ = (<-got).Release(t.Context())
		}
	})
}

// A reader with a MinHold holds its share for that time, also if it waited behind readers that
// share a lease.
// Shows: S10
func TestShareMinHoldOfReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		writer := w.Locker(lockcore.Options{})
		readers := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
		cooled := readers
		cooled.MinHold = 10 * time.Second
		_ = shareOf(t, l, readers).Release(t.Context())
		first, second := shareOf(t, l, readers), shareOf(t, l, readers)
		var all sync.WaitGroup
		var began, wrote time.Time
		all.Go(func() {
			le := shareOf(t, writer, testcall.Call{Terms: lockcore.Terms{Wait: lockcore.Forever}})
			wrote = time.Now()
			_ = le.Release(t.Context())
		})
		time.Sleep(time.Millisecond)
		all.Go(func() {
			le := shareOf(t, l, cooled)
			began = time.Now()
			_ = le.Release(t.Context())
		})
		time.Sleep(time.Millisecond)
		all.Go(func() { _ = shareOf(t, l, readers).Release(t.Context()) })
		time.Sleep(time.Millisecond)
		_ = first.Release(t.Context())
		time.Sleep(time.Millisecond)
		_ = second.Release(t.Context())
		all.Wait()
		if wrote.After(began) && wrote.Before(began.Add(cooled.MinHold)) {
			t.Errorf("a writer got the key %v after the begin of a hold with MinHold %v", wrote.Sub(began), cooled.MinHold)
		}
	})
}

// A revocation ends with the last handler, and does not last for the MinHold of permits that were
// released before. Revoke of a key whose permits are all cooling changes nothing.
// Shows: S11
func TestShareRevokeCooling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		rate := testcall.Call{Limit: lockcore.Limit{N: 10}, Terms: lockcore.Terms{MinHold: time.Hour, Wait: time.Second}}
		_ = shareOf(t, l, rate).Release(t.Context())
		ok(t, l.Revoke(t.Context(), event.KindExclusive, "k"))
		hung := shareOf(t, l, rate)
		time.Sleep(3 * time.Second)
		ok(t, l.Revoke(t.Context(), event.KindExclusive, "k"))
		time.Sleep(time.Second)
		wantErr(t, "the handler", context.Cause(hung.Context()), lockcore.ErrRevoked)
		_, err := rate.Acquire(t.Context(), l, "k")
		wantErr(t, "a call while the handler runs", err, lockcore.ErrBusy)
		_ = hung.Release(t.Context())
		_ = shareOf(t, l, rate).Release(t.Context())
	})
}

// A reader joins a share while its revocation is checked. It ends with the others.
// Shows: S11
func TestShareRevokeJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, f, _ := w.Locker(lockcore.Options{})
		op, _, _ := w.Locker(lockcore.Options{})
		readers := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Lease: time.Minute, Wait: lockcore.NoWait}}
		other, err := l.Acquire(t.Context(), "other", lockcore.Terms{}) // keeps the subscription
		ok(t, err)
		defer func() { _ = other.Release(t.Context()) }()
		time.Sleep(3 * time.Second)
		all := []*lockcore.Lease{shareOf(t, l, readers)}
		f.Delay(time.Millisecond)
		ok(t, op.Revoke(t.Context(), event.KindExclusive, "k"))
		for range 8 {
			time.Sleep(500 * time.Microsecond)
			if le, err := readers.Acquire(t.Context(), l, "k"); err == nil {
				all = append(all, le)
			}
		}
		began := time.Now()
		for _, le := range all {
			<-le.Context().Done()
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("the ctx of a reader ended %v after the revocation", d)
			}
			_ = le.Release(t.Context())
		}
	})
}

// The release of the last reader is repeated for as long as Redis keeps the share, also if another
// reader has extended it.
func TestShareExtendedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, f, _ := w.Locker(lockcore.Options{})
		readers := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Lease: 2 * time.Second}}
		first, second := shareOf(t, l, readers), shareOf(t, l, readers)
		ok(t, first.Extend(t.Context(), time.Hour))
		_ = first.Release(t.Context())
		f.Silence()
		_ = second.Release(t.Context())
		time.Sleep(5 * time.Second)
		f.Heal()
		time.Sleep(30 * time.Second)
		if s, err := l.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || s.State != lockcore.StateFree {
			t.Errorf("30 s later: %+v, %v", s, err)
		}
	})
}

// All permits are cooling. RetryAfter is the time until the first one is free.
// Shows: S10
func TestShareRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		rate := testcall.Call{Limit: lockcore.Limit{N: 1}, Terms: lockcore.Terms{MinHold: 30 * time.Second, Wait: lockcore.NoWait}}
		_ = shareOf(t, l, rate).Release(t.Context())
		time.Sleep(100 * time.Millisecond)
		_, err := rate.Acquire(t.Context(), l, "k")
		b, is := errors.AsType[*lockcore.BusyError](err)
		if !is || math.Round(b.RetryAfter().Seconds()) != 30 || b.Shares != 1 || !strings.Contains(err.Error(), "the first one is free in 29.9s") {
			t.Errorf("all permits cool: %+v, %v", b, err)
		}
		time.Sleep(time.Minute)
		held := shareOf(t, l, rate)
		_, err = rate.Acquire(t.Context(), l, "k")
		if b, is := errors.AsType[*lockcore.BusyError](err); !is || !b.Local || !strings.Contains(err.Error(), "another call of this process") {
			t.Errorf("all permits are held: %+v, %v", b, err)
		}
		_ = held.Release(t.Context())
	})
}

// Many permits are released during an outage. Redis still remembers an ended request, whose late
// duplicate gets no share.
// Shows: S7
func TestShareOutageRemembers(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	a, fa, _ := w.Locker(lockcore.Options{})
	b, fb, _ := w.Locker(lockcore.Options{})
	terms := testcall.Call{Limit: lockcore.Limit{N: 100}, Terms: lockcore.Terms{Wait: lockcore.NoWait}}
	_ = shareOf(t, a, terms).Release(t.Context())
	_ = shareOf(t, b, terms).Release(t.Context())
	late := fb.Hold(func(r faulty.Request) bool { return strings.HasPrefix(r.Name, "EVAL") && r.About("/100/1/") })
	_ = shareOf(t, b, terms).Release(t.Context()) // a second copy of the request was granted this share
	<-late.Struck()
	var all []*lockcore.Lease
	for range 17 {
		all = append(all, shareOf(t, a, terms))
	}
	fa.Silence()
	var wg sync.WaitGroup
	for _, le := range all {
		wg.Go(func() { _ = le.Release(t.Context()) })
	}
	wg.Wait()
	fa.Heal()
	free := func() bool {
		s, err := a.Inspect(t.Context(), event.KindExclusive, "k")
		return err == nil && s.State == lockcore.StateFree
	}
	for !free() {
		time.Sleep(10 * time.Millisecond)
	}
	late.Deliver()
	time.Sleep(200 * time.Millisecond)
	if !free() {
		t.Error("a late duplicate has a share")
	}
}
