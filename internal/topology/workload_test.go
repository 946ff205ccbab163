package topology_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	rnd "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

var (
	runFor     = flag.Duration("for", 3*time.Second, "how long the load goes on after each fault")
	failovers  = flag.Int("failovers", 1, "failovers of each test, each on new servers")
	migrations = flag.Int("migrations", 50, "slots that are moved under load")
)

const (
	lease     = 3 * time.Second
	wait      = 5 * time.Second
	slack     = 3 * time.Second  // of a call beyond its wait, on a slow machine
	recovery  = 20 * time.Second // a failover takes 2 to 4 s; a client that does not find the new primary takes a minute
	processes = 3                // Lockers, each with a separate client
	workers   = 12               // of each
	keys      = 6
	callsEach = 8 // of a once key

	longKey  = "long"
	longHold = 3 * lease // so that it is held through every fault, and others wait
)

// load is processes that compete for keys, with the same code for each client.
type load struct {
	*oracle
	control *redistest.Control
	calls   atomic.Int64 // of once keys
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// start starts the load, each process on a client that dial makes, and waits until every key has
// been held.
func start(t *testing.T, o lockcore.Options, dial func() redis.UniversalClient) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{oracle: newOracle(t), control: redistest.NewControl(t), stop: cancel}
	o.Terms = lockcore.Terms{Lease: lease, Wait: wait}
	for range processes {
		rdb := dial()
		t.Cleanup(func() { _ = rdb.Close() })
		locks := chaos.Locker(t, rdb, o)
		l.wg.Go(func() { l.holdLong(ctx, locks) })
		for range workers {
			l.wg.Go(func() { l.work(ctx, locks) })
		}
	}
	t.Cleanup(l.end)
	l.each(50)
	return l
}

// end ends the load and waits until every call has returned.
func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

// each waits until each key has had n holds since the last fault.
func (l *load) each(n int) {
	l.t.Helper()
	least := 0
	if !chaos.Within(time.Minute, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		least = n
		for i := range keys {
			least = min(least, l.registerLocked(keyName(i)).since)
		}
		return least >= n
	}) {
		l.t.Fatalf("a key had %d holds in a minute", least)
	}
}

// forA lets the load go on.
func (l *load) forA(d time.Duration) { time.Sleep(d) }

func keyName(i int) string { return fmt.Sprint("k", i) }

// work makes calls until ctx ends. The calls do not get ctx, so each has to end by itself.
func (l *load) work(ctx context.Context, locks *lockcore.Locker) {
	for ctx.Err() == nil {
		if rnd.IntN(5) == 0 {
			l.once(locks, fmt.Sprint("job", l.calls.Add(1)/callsEach))
		} else {
			l.exclusive(locks, keyName(rnd.IntN(keys)))
		}
	}
}

// exclusive acquires a key, mostly for milliseconds, and sometimes for half a lease.
func (l *load) exclusive(locks *lockcore.Locker, key string) {
	began := time.Now()
	var inside time.Duration
	err := guard.Exclusive(context.Background(), locks, key, lockcore.Terms{}, func(ctx context.Context) error {
		entered := time.Now()
		defer func() { inside = time.Since(entered) }()
		busyFor := rnd.N(2 * time.Millisecond)
		if rnd.IntN(1000) == 0 {
			busyFor = lease / 2
		}
		l.readAndWrite(ctx, key, busyFor)
		return nil
	})
	l.called(err, time.Since(began)-inside-l.control.Late(began))
}

// holdLong acquires the one key that is held for longer than a lease, through failovers too, until
// ctx ends.
func (l *load) holdLong(ctx context.Context, locks *lockcore.Locker) {
	for ctx.Err() == nil {
		err := guard.Exclusive(ctx, locks, longKey, lockcore.Terms{Wait: lockcore.Forever}, func(ctx context.Context) error {
			l.readAndWrite(ctx, longKey, longHold)
			return nil
		})
		if ctx.Err() == nil {
			l.called(err, 0)
		}
	}
}

// readAndWrite reads the register of a key and writes it later. A write that was under way when ctx
// ended is sent nevertheless. The register must refuse it.
func (l *load) readAndWrite(ctx context.Context, key string, later time.Duration) {
	token, _ := guard.Token(ctx, key)
	if token == 0 {
		return // the lease is over already
	}
	ten, r := l.enter(ctx, key, token)
	defer l.leave(key, ten)
	value, ok := r.Read(token, ten)
	if !ok {
		return
	}
	select {
	case <-time.After(later):
	case <-ctx.Done():
	}
	r.Write(token, ten, value+1)
}

func (l *load) once(locks *lockcore.Locker, name string) {
	began := time.Now()
	var inside time.Duration
	res, err := guard.OnceValue(context.Background(), locks, name, guard.OnceOptions{}, func(ctx context.Context) (string, error) {
		entered := time.Now()
		defer func() { inside = time.Since(entered) }()
		_, tookOver := guard.Attempt(ctx, name)
		value := rand.Text()
		l.ran(name, value, tookOver)
		time.Sleep(rnd.N(2 * time.Millisecond))
		return value, nil
	})
	if res.Outcome == guard.Replayed && err == nil {
		l.replayed(name, res.Value)
	}
	l.called(err, time.Since(began)-inside-l.control.Late(began))
}

// called records how a call ended. Only errors after which a user may try again are allowed.
func (l *load) called(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
	switch {
	case err == nil:
	case errors.Is(err, lockcore.ErrReplicaAcks):
		l.errs["acks"]++
	case errors.Is(err, lockcore.ErrUnavailable):
		l.errs["unavailable"]++
	case errors.Is(err, lockcore.ErrBusy):
		l.errs["busy"]++
	case errors.Is(err, lockcore.ErrLost):
		l.lost++
	default:
		l.t.Errorf("a call ended with %v", err)
	}
}
