// Package lockworld is the scaffold of tests that need Lockers on one Redis, as processes that share
// it. The tests of package lockcore and of its backend on Redis use it. Users have package locktest.
package lockworld

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// World is one Redis, and makes the Lockers of several processes on it. Each Locker has faults and a
// counter of its own.
type World struct {
	T       *testing.T
	Memory  *redistest.Memory     // nil on a real server
	Redis   *redis.Client         // its connections have no faults
	Options func() *redis.Options // of further clients
}

// New returns a World in memory, with the bubble's clock. Call it in a testing/synctest bubble.
func New(t *testing.T) *World {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a dead server is back
	m := redistest.Bubble(t)
	return &World{T: t, Memory: m, Redis: m.Client(t), Options: m.Options}
}

// Real returns a World on a new server.
func Real(t *testing.T) *World {
	t.Helper()
	return At(t, redistest.Real(t))
}

// At returns a World on s.
func At(t *testing.T, s *redistest.Server) *World {
	t.Helper()
	return &World{T: t, Redis: s.Client(t), Options: s.Options}
}

// Locker returns a Locker behind its own faults, which is closed when the test ends. In a bubble it
// sends no groups, so that tests can count the commands of each call.
func (w *World) Locker(o lockcore.Options) (*lockcore.Locker, *faulty.Network, *redistest.Counter) {
	w.T.Helper()
	faults, count := faulty.New(w.T), new(redistest.Counter)
	ro := w.Options()
	if ro.Dialer == nil {
		ro.Dialer = redis.NewDialer(ro)
	}
	ro.Dialer = count.Dial(faults.Dial(ro.Dialer))
	rdb := redis.NewClient(ro)
	o.NoGroups = w.Memory != nil
	l, err := lockcore.New(rdb, o)
	OK(w.T, err)
	w.T.Cleanup(func() {
		faults.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.T.Errorf("Close: %v", err)
		}
		_ = rdb.Close()
	})
	return l, faults, count
}

// LockerOn returns a Locker on any client. It sends no groups. It and the client are closed when the
// test ends.
func LockerOn(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	o.NoGroups = true
	l, err := lockcore.New(rdb, o)
	OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start, control := time.Now(), redistest.NewControl(t)
		if err := l.Close(ctx); err != nil || time.Since(start) > 2*time.Second+control.Late(start) {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		_ = rdb.Close()
	})
	return l
}

// wrapper is a client of a type that lockcore.New does not know. New passes commands to it
// unchanged, and the client inside it ignores ctx.
type wrapper struct{ redis.UniversalClient }

// Wrap returns a client of such a type.
func Wrap(rdb redis.UniversalClient) redis.UniversalClient { return wrapper{rdb} }

// NoWait are the terms of a call that does not wait, and Long the terms of one that waits for an
// hour.
var (
	NoWait = lockcore.Terms{Wait: lockcore.NoWait}
	Long   = lockcore.Terms{Wait: time.Hour}
)

// Warm opens the connections of l and loads the scripts.
func (w *World) Warm(l *lockcore.Locker) {
	for range 3 {
		_ = w.Must(l.Acquire(context.Background(), "warm", NoWait)).Release(context.Background())
	}
}

// Left returns the rest of the lease of key on the server.
func (w *World) Left(l *lockcore.Locker, key string) time.Duration {
	w.T.Helper()
	h, err := l.Inspect(context.Background(), event.KindExclusive, key)
	OK(w.T, err)
	return h.Remaining
}

// Must ends the test if there is an error.
func (w *World) Must(le *lockcore.Lease, err error) *lockcore.Lease {
	w.T.Helper()
	OK(w.T, err)
	return le
}

// OK ends the test if there is an error.
func OK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TakeOnce acquires and releases a key.
func TakeOnce(t *testing.T, l *lockcore.Locker, key string) {
	t.Helper()
	le, err := l.Acquire(t.Context(), key, lockcore.Terms{})
	OK(t, err)
	OK(t, le.Release(t.Context()))
}

// Eventually waits until ok returns true, for at most a minute.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// InspectRecord returns the record of a once key, and its Holding without the record, which is
// comparable.
func InspectRecord(ctx context.Context, l *lockcore.Locker, key string) (h lockcore.Holding, rec *lockcore.Record, err error) {
	h, err = l.Inspect(ctx, event.KindOnce, key)
	rec, h.Record = h.Record, nil
	return h, rec, err
}

// StoredNames returns the names of a key and of its queue in Redis, under the default prefix.
func StoredNames(kind event.Kind, key string) [2]string {
	return wire.StoredNames("holdfast", backend.Kind(kind), key)
}

// FaultKinds plant one fault each, into the first command that matches.
var FaultKinds = map[string]func(*faulty.Network, faulty.Match) *faulty.Fault{
	"request lost": (*faulty.Network).LoseRequest, "request cut": (*faulty.Network).CutRequest,
	"reply lost": (*faulty.Network).LoseReply, "reply cut": (*faulty.Network).CutReply,
	"held up": (*faulty.Network).Hold,
}

// Struck reports whether a command has met the fault.
func Struck(f *faulty.Fault) bool {
	select {
	case <-f.Struck():
		return true
	default:
		return false
	}
}
