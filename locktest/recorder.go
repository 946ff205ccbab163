package locktest

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/event"
)

// Recorder is a [event.Observer] that records what it receives, for tests of what a Locker, a
// middleware or an application reports. The zero Recorder is ready to use. It must not be copied.
// Its methods may be called at the same time.
//
// A Recorder keeps every event until Reset, so it is not for production. It has no traceparent: use
// [event.Join] to record next to another Observer.
type Recorder struct {
	mu     sync.Mutex
	calls  []event.Acquisition
	events []event.Event
}

// Start records a.
func (r *Recorder) Start(ctx context.Context, a event.Acquisition) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, a)
	return ctx
}

// Event records e.
func (r *Recorder) Event(_ context.Context, e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Traceparent returns "".
func (*Recorder) Traceparent(context.Context) string { return "" }

// Calls returns what Start received, in this order.
func (r *Recorder) Calls() []event.Acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Events returns all events in the order in which they came. [EventsOf] returns those of one type.
func (r *Recorder) Events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Reset forgets all calls and events.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.events = nil, nil
}

// EventsOf returns the events of type E that r has recorded, in the order in which they came.
func EventsOf[E event.Event](r *Recorder) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []E
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}
