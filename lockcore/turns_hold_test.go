package lockcore_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// callEvents is an Observer that keeps the events of each call. The test identifies a call by a number in
// its ctx.
type callEvents struct {
	mu    sync.Mutex
	heard map[int][]event.Event
	more  *sync.Cond
}

type callKey struct{}

func newCallEvents() *callEvents {
	e := &callEvents{heard: map[int][]event.Event{}}
	e.more = sync.NewCond(&e.mu)
	return e
}

func (e *callEvents) call(ctx context.Context, i int) context.Context {
	return context.WithValue(ctx, callKey{}, i)
}

func (e *callEvents) Start(ctx context.Context, _ event.Acquisition) context.Context {
	return ctx
}
func (e *callEvents) Traceparent(context.Context) string { return "" }

func (e *callEvents) Event(ctx context.Context, v event.Event) {
	i, ok := ctx.Value(callKey{}).(int)
	if !ok {
		return
	}
	e.mu.Lock()
	e.heard[i] = append(e.heard[i], v)
	e.mu.Unlock()
	e.more.Broadcast()
}

// until waits for an event of call i with the type of like, and returns it.
func (e *callEvents) until(t *testing.T, i int, like event.Event) event.Event {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() { panic("no such event") })
	defer late.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		for _, v := range e.heard[i] {
			if reflect.TypeOf(v) == reflect.TypeOf(like) {
				return v
			}
		}
		e.more.Wait()
	}
}

// types returns the types of the events of call i, in order.
func (e *callEvents) types(i int) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.heard[i] {
		names = append(names, reflect.TypeOf(v).Name())
	}
	return names
}

// relay has a key that one call holds, while other calls of its process wait for it.
type relay struct {
	*world
	l      *lockcore.Locker
	events *callEvents
	first  *lockcore.Lease
	next   []chan *lockcore.Lease
}

// newRelay lets call 0 acquire the key. Calls with the terms of then wait for it.
func newRelay(t *testing.T, w *world, l *lockcore.Locker, e *callEvents, first testcall.Call, then ...testcall.Call) *relay {
	t.Helper()
	e.mu.Lock()
	clear(e.heard)
	e.mu.Unlock()
	r := &relay{world: w, l: l, events: e}
	r.first = w.Must(first.Acquire(e.call(lockcore.WithTask(t.Context(), "task 0"), 0), l, "k"))
	for i, terms := range then {
		got := make(chan *lockcore.Lease, 1)
		r.next = append(r.next, got)
		ctx := e.call(lockcore.WithTask(t.Context(), "task "+string(rune('1'+i))), i+1)
		go func() {
			terms.Wait = time.Minute
			le, err := terms.Acquire(ctx, l, "k")
			if err != nil {
				t.Error(err)
			}
			got <- le
		}()
		e.until(t, i+1, event.Waiting{})
	}
	return r
}

// grant returns the id of the grant that Redis has.
func (r *relay) grant() string {
	r.T.Helper()
	fields, err := redistest.Fields(r.T.Context(), r.Redis, storedNames(event.KindExclusive, "k")[0])
	id := fields["h"]
	if err != nil {
		r.T.Error(err)
	}
	return id
}

// pass releases le, and returns the lease of the next call and whether the key was handed off.
func (r *relay) pass(le *lockcore.Lease, i int) (next *lockcore.Lease, handed bool) {
	r.T.Helper()
	before := r.grant()
	if err := le.Release(r.T.Context()); err != nil {
		r.T.Error(err)
	}
	next = <-r.next[i]
	return next, r.grant() == before
}

// handedOff returns a relay whose first lease was handed off, and the lease of the next call.
func handedOff(t *testing.T, start func() *relay) (*relay, *lockcore.Lease) {
	t.Helper()
	r := start()
	le, handed := r.pass(r.first, 0)
	if !handed {
		t.Fatal("the key was not handed off")
	}
	return r, le
}

// relays returns a function that makes relays. It needs a bubble, because a busy machine may be
// slower than the 5 ms of a batch.
func relays(t *testing.T, first testcall.Call, then ...testcall.Call) func() *relay {
	t.Helper()
	w, e := newWorld(t), newCallEvents()
	l, _, _ := w.Locker(lockcore.Options{Observer: e})
	return func() *relay { return newRelay(t, w, l, e, first, then...) }
}

// A waiter requests another lease than that of the holder. It gets its own grant, with the lease
// that it requests. The same holds for a waiter after an extended lease.
// Shows: W8
func TestTurnsOwnLease(t *testing.T) {
	long, short := testcall.Call{Terms: lockcore.Terms{Lease: 20 * time.Second}}, testcall.Call{Terms: lockcore.Terms{Lease: 4 * time.Second}}
	fixed := testcall.Call{Fixed: true, Terms: lockcore.Terms{Lease: 4 * time.Second}}
	for name, test := range map[string]struct {
		first, then testcall.Call
		extend      time.Duration
	}{
		"shorter":     {first: long, then: short},
		"longer":      {first: short, then: long},
		"not renewed": {first: short, then: fixed},
		"renewed":     {first: fixed, then: short},
		"extended":    {first: fixed, then: fixed, extend: 20 * time.Second},
	} {
		inTime(t, name, func(t *testing.T) {
			start := relays(t, test.first, test.then)
			for range 5 {
				r := start()
				if test.extend > 0 {
					if err := r.first.Extend(t.Context(), test.extend); err != nil {
						t.Error(err)
					}
				}
				le, handed := r.pass(r.first, 0)
				if left := r.Left(r.l, "k"); handed || left > test.then.Lease || left < test.then.Lease-2*time.Second {
					t.Errorf("handed off: %v, want false; of the lease of %v remain %v", handed, test.then.Lease, left)
				}
				if le.Token() <= r.first.Token() {
					t.Errorf("token %d after %d", le.Token(), r.first.Token())
				}
				_ = le.Release(t.Context())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, le := handedOff(t, relays(t, long, long)) // a control: with equal leases the key is handed off
		_ = le.Release(t.Context())
	})
}

// MaxHold counts from the beginning of its own hold, and does not bound the next hold.
// Shows: W7
func TestTurnsMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited, free := lockcore.Terms{MaxHold: 60 * time.Millisecond}, lockcore.Terms{}
		r, le := handedOff(t, relays(t, testcall.Call{Terms: limited}, testcall.Call{Terms: free}))
		time.Sleep(150 * time.Millisecond)
		if err := le.Context().Err(); err != nil {
			t.Errorf("the hold after a bounded one ended: %v", context.Cause(le.Context()))
		}
		if !errors.Is(context.Cause(r.first.Context()), lockcore.ErrReleased) {
			t.Errorf("the hold before: %v", context.Cause(r.first.Context()))
		}
		_ = le.Release(t.Context())

		r, le = handedOff(t, relays(t, testcall.Call{Terms: free}, testcall.Call{Terms: limited}, testcall.Call{Terms: free}))
		start := time.Now()
		<-le.Context().Done() // before the watchdog has published the holder
		if d := time.Since(start); d <= 0 || d > 60*time.Millisecond || !errors.Is(context.Cause(le.Context()), lockcore.ErrMaxHold) {
			t.Errorf("ended after %v: %v", d, context.Cause(le.Context()))
		}
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			t.Errorf("release: %v", err)
		}
		third := <-r.next[1]
		if third.Token() <= le.Token() || third.Context().Err() != nil || third.Abandoned() {
			t.Errorf("the next hold: token %d after %d, %v", third.Token(), le.Token(), third.Context().Err())
		}
		_ = third.Release(t.Context())
	})
}

// Each hold has its own token and events.
// Shows: I13, W7
func TestTurnsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, le := handedOff(t, relays(t, testcall.Call{}, testcall.Call{}))
		time.Sleep(20 * time.Millisecond)
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for i, want := range [][]string{{"Granted", "Released"}, {"Waiting", "Granted", "Released"}} {
			if got := r.events.types(i); !reflect.DeepEqual(got, want) {
				t.Errorf("events of call %d: %q, want %q", i, got, want)
			}
		}
		for i, le := range []*lockcore.Lease{r.first, le} {
			g := r.events.until(t, i, event.Granted{}).(event.Granted)   //nolint:errcheck // until returns this type
			e := r.events.until(t, i, event.Released{}).(event.Released) //nolint:errcheck // until returns this type
			if g.Token != le.Token() || g.Contended != (i > 0) || g.Abandoned || e.Lost != nil || e.Stale || e.Err != nil {
				t.Errorf("call %d: %+v, %+v", i, g, e)
			}
			if long := e.Held >= 20*time.Millisecond; long != (i > 0) {
				t.Errorf("call %d: Held is %v", i, e.Held)
			}
		}
		if le.Token() != r.first.Token()+1 {
			t.Errorf("token %d after %d", le.Token(), r.first.Token())
		}
	})
}

// After a hand-off Inspect of any process returns the new hold and its token within about 300 ms.
// Shows: W9
func TestTurnsInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, le := handedOff(t, relays(t, testcall.Call{}, testcall.Call{}))
		elsewhere, _, _ := r.Locker(lockcore.Options{})
		start := time.Now()
		for {
			h, err := elsewhere.Inspect(t.Context(), event.KindExclusive, "k")
			if err != nil {
				t.Fatal(err)
			}
			if h.Holder.Task == "task 1" && h.Token == le.Token() && h.State == lockcore.StateHeld {
				break
			}
			if d := time.Since(start); d > 600*time.Millisecond {
				t.Fatalf("%v after the hand-off Inspect returns %+v", d, h)
			}
			time.Sleep(time.Millisecond)
		}
		t.Logf("published after %v", time.Since(start))
		_ = le.Release(t.Context())
	})
}
