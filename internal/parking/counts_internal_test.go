package parking

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// panics is an Observer that panics at the events of one type.
type panics[E event.Event] struct{}

func (panics[E]) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }

func (panics[E]) Traceparent(context.Context) string { return "" }

func (panics[E]) Event(_ context.Context, e event.Event) {
	if _, ok := e.(E); ok {
		panic("observer")
	}
}

// nothing is a Queue without tasks.
type nothing struct{}

func (nothing) Lookup(string) Task { return Task{State: Gone} }

func (nothing) Run(string) bool { return false }

// The counts of a Pool return to zero after every kind of end of a delivery.
func TestParkingCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		observer event.Observer
		handler  func() error
		busy     bool // the key
	}{
		"returns":                     {},
		"fails":                       {handler: func() error { return errors.New("handler") }},
		"panics":                      {handler: func() error { panic("handler") }},
		"exits":                       {handler: func() error { runtime.Goexit(); return nil }},
		"busy":                        {busy: true},
		"Observer panics at granted":  {observer: panics[event.Granted]{}},
		"Observer panics at unparked": {observer: panics[event.Unparked]{}},
		"Observer panics at released": {observer: panics[event.Released]{}},
		"Observer panics at waiting":  {observer: panics[event.Waiting]{}, busy: true},
		"Observer panics at refused":  {observer: panics[event.Refused]{}, busy: true},
		"Observer panics at parked":   {observer: panics[event.Parked]{}, busy: true},
	} {
		for _, canceled := range []bool{false, true} { // the ctx of the delivery
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: tt.observer})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locks.Close(context.Background()) }()
				p := New(Options{Queue: nothing{}, Workers: 3, Check: time.Second, Late: 5 * time.Second})
				v := &Delivery{
					Pool: p, locks: p.attach(locks), mean: new(Mean), needs: []need{{lockKey: lockKey{p.attach(locks), backend.KindExclusive, "key"}, part: part{1, 1}}}, entry: "/q/1", lease: time.Minute,
				}
				deliver := func() { // as a worker does
					defer func() { _ = recover() }()
					_, _, _ = v.Run(ctx, lockcore.Terms{Wait: time.Millisecond}, func(terms lockcore.Terms) (ran bool, err error) {
						err = guard.Exclusive(ctx, locks, "key", terms, func(ctx context.Context) error {
							ran = true
							defer v.Begin(ctx)()
							if tt.handler != nil {
								return tt.handler()
							}
							return nil
						})
						return ran, err
					})
				}
				b, key := access.Of(locks).Backend, access.Of(locks).Backend.Key(backend.KindExclusive, "key")
				holder := backend.AcquireRequest{Key: &key, ID: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Lease: time.Minute, Retention: time.Hour}
				if r, err := b.Acquire(ctx, holder); err != nil || r.Outcome != backend.OutcomeGranted {
					t.Fatal(r, err)
				}
				if r, err := b.Park(ctx, backend.ParkRequest{Key: &key, Entry: v.entry, Most: 2, Keep: time.Hour}); err != nil || r.Outcome != backend.Parked {
					t.Fatal(r, err)
				}
				p.noteParked(v.needs[0].lockKey, part{1, 1})
				if !tt.busy {
					if _, err := b.Release(ctx, backend.ReleaseRequest{Key: &key, ID: holder.ID, Retention: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				if canceled {
					cancel()
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					deliver()
				}()
				<-done
				cancel()
				if p.mu.Lock(); p.waiting != 0 || len(p.keys) != 0 {
					t.Errorf("%d workers wait, and there are counts of %d keys", p.waiting, len(p.keys))
				}
				p.mu.Unlock()
			})
		}
	}
}

// Two jobs of a key that no waker has begun become one: none of their entries is lost. Otherwise a
// task would count as woken, for ten seconds, without being run.
// Shows: A6
func TestJobsOfAKeyAddUp(t *testing.T) {
	p, k := New(Options{}), lockKey{}
	p.wakers.running = maxWakers // all of them work for other keys
	p.wake(k, 1, backend.UnparkReply{Wake: []string{"a"}, Marked: 7})
	p.wake(k, 2, backend.UnparkReply{Wake: []string{"b"}, Marked: 5})
	p.wakeFree(k, 1)
	_, j, ok := p.nextWake()
	if !ok || j.want != 2 || !slices.Equal(j.entries, []string{"a", "b"}) || j.marked != 7 || !j.free {
		t.Errorf("%+v, %v", j, ok)
	}
}
