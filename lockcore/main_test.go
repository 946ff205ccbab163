package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	process.Work(role.play)
	logging.Disable() // these tests cause faults
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// world has one Redis, and makes Lockers on it, each behind its own faults.
type world struct {
	t      *testing.T
	memory *redistest.Memory // nil on a real server
	rdb    *redis.Client     // untouched by faults
	dial   func() *redis.Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a dead server is back
	m := redistest.Bubble(t)
	return &world{t: t, memory: m, rdb: m.Client(t), dial: m.Options}
}

func realWorld(t *testing.T) *world {
	t.Helper()
	s := redistest.Real(t)
	return &world{t: t, rdb: s.Client(t), dial: s.Options}
}

// locker returns a Locker behind its own faults, which is closed when the test ends.
func (w *world) locker(o lockcore.Options) (*lockcore.Locker, *faulty.Network, *redistest.Counter) {
	w.t.Helper()
	faults, count := faulty.New(w.t), new(redistest.Counter)
	ro := w.dial()
	if ro.Dialer == nil {
		ro.Dialer = redis.NewDialer(ro)
	}
	ro.Dialer = count.Dial(faults.Dial(ro.Dialer))
	rdb := redis.NewClient(ro)
	o.NoGroups = w.memory != nil // in a bubble, tests count the commands of each call
	l, err := lockcore.New(rdb, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		faults.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("Close: %v", err)
		}
		_ = rdb.Close()
	})
	return l, faults, count
}

// left returns the remaining lease of key on the server.
func (w *world) left(l *lockcore.Locker, key string) time.Duration {
	w.t.Helper()
	h, err := l.Inspect(context.Background(), lockcore.KindExclusive, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return h.Remaining
}

func (w *world) must(le *lockcore.Lease, err error) *lockcore.Lease {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return le
}

// storedNames returns the names of a key in Redis under the default prefix.
func storedNames(kind lockcore.Kind, key string) [2]string {
	return wire.StoredNames("holdfast", backend.Kind(kind), key)
}

var noWait = lockcore.Terms{Wait: lockcore.NoWait}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inspectRecord returns the record apart from the Holding, which is then comparable.
func inspectRecord(ctx context.Context, l *lockcore.Locker, key string) (h lockcore.Holding, rec *lockcore.Record, err error) {
	h, err = l.Inspect(ctx, lockcore.KindOnce, key, lockcore.WithRecord)
	rec, h.Record = h.Record, nil
	return h, rec, err
}
