package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// fragile is an Observer that panics in each call from a goroutine of the Locker.
type fragile struct{}

func (*fragile) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (*fragile) Traceparent(context.Context) string                             { panic("traceparent") }

func (*fragile) Event(_ context.Context, e event.Event) {
	switch e.(type) {
	case event.RenewPass, event.RenewFailed, event.Lost, event.Overrun, event.CompletionFailed, event.Misconfigured:
		panic("event")
	}
}

// An Observer that panics on the watchdog's goroutine, a timer or in the background ends neither
// the process nor a lease. An Observer that is joined with it gets the same events.
// Shows: L10
func TestObserverPanicsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		heard := new(locktest.Recorder)
		l, faults, _ := w.Locker(lockcore.Options{Observer: event.Join(new(fragile), heard)})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(time.Minute) // it is renewed
		once, _, err := l.Claim(t.Context(), "o", lockcore.Claim{})
		if err != nil || le.Context().Err() != nil {
			t.Fatal(err, context.Cause(le.Context()))
		}
		faults.Silence()
		_ = once.Complete(t.Context(), []byte("record"), time.Minute)
		<-le.Context().Done()
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // meanwhile the record cannot be stored
		faults.Heal()
		renewed, failed := len(locktest.EventsOf[event.RenewPass](heard)), len(locktest.EventsOf[event.RenewFailed](heard))
		lost, completion := len(locktest.EventsOf[event.Lost](heard)), len(locktest.EventsOf[event.CompletionFailed](heard))
		if misconfigured := len(locktest.EventsOf[event.Misconfigured](heard)); renewed == 0 || failed == 0 || lost != 1 || completion != 1 || misconfigured != 1 {
			t.Errorf("heard %+v", heard.Events())
		}
		if n := lockcore.ObserverPanics(l); n < int64(renewed+failed+lost+completion) {
			t.Errorf("%d panics were counted, heard %+v", n, heard.Events())
		}
	})
}

// panicsOn is an Observer that panics at the events of one type.
type panicsOn[E event.Event] struct{}

func (panicsOn[E]) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (panicsOn[E]) Traceparent(context.Context) string                             { return "" }

func (panicsOn[E]) Event(_ context.Context, e event.Event) {
	if _, ok := e.(E); ok {
		panic("event")
	}
}

// panics reports whether f panics.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// An Observer panics during a release. The panic reaches the caller after the key is free, and
// Close does not wait.
func TestObserverPanicsOnReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{Observer: panicsOn[event.Released]{}})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		if !panics(func() { _ = le.Release(t.Context()) }) {
			t.Error("no panic")
		}
		other := w.Locker(lockcore.Options{})
		takeOnce(t, other, "k")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil || time.Since(start) > time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// An Observer panics in Lost or Overrun, which the release reports if the handler was late. The
// panic is counted. The record is stored, and Released is the last event.
func TestObserverPanicsOnOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		heard := new(locktest.Recorder)
		l := w.Locker(lockcore.Options{Observer: event.Join(panicsOn[event.Lost]{}, panicsOn[event.Overrun]{}, heard)})
		le, _, err := l.Claim(t.Context(), "o", lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		locktest.Lose(le.Context())
		time.Sleep(200 * time.Millisecond)
		if err := le.Complete(t.Context(), []byte("record"), time.Minute); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		events := heard.Events()
		if e, ok := events[len(events)-1].(event.Released); !ok || lockcore.ObserverPanics(l) != 2 {
			t.Errorf("the last event is %T, %d panics were counted", e, lockcore.ObserverPanics(l))
		}
		other := w.Locker(lockcore.Options{})
		if _, rec, err := other.Claim(t.Context(), "o", lockcore.Claim{Terms: noWait}); err != nil || rec == nil || string(rec.Data) != "record" {
			t.Errorf("the next claim: %v, %v, want the record", rec, err)
		}
	})
}
