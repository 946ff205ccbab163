package serverfault_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

const (
	lockers = 3
	each    = 4 // callers of a Locker
	keys    = 3
)

// load makes calls while the server fails, and notices what must not happen meanwhile.
type load struct {
	t       *testing.T
	locks   []*lockcore.Locker
	stop    chan struct{}
	callers sync.WaitGroup
	grants  atomic.Int64
	forgot  atomic.Bool // the server has lost its data: a key may have two holders until they learn of that

	mu       sync.Mutex
	holders  [keys]context.Context // of the hold that began last
	tokens   [keys]int64
	overlaps int
	refused  int // calls that did not run
}

func newLoad(t *testing.T, s *redistest.Server) *load {
	t.Helper()
	ld := &load{t: t, stop: make(chan struct{})}
	for range lockers {
		o := lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: 10 * time.Second}}
		ld.locks = append(ld.locks, chaos.Locker(t, s.Client(t), o))
	}
	for i := range lockers * each {
		ld.callers.Go(func() { ld.call(i) })
	}
	return ld
}

func (ld *load) end() {
	close(ld.stop)
	ld.callers.Wait()
}

// call makes calls until the end: for exclusive keys, and sometimes for a new key that runs once.
func (ld *load) call(i int) {
	for n := i; ; n++ {
		select {
		case <-ld.stop:
			return
		case <-time.After(time.Millisecond): // the server is for the faults, not for a record
		}
		key := n % keys
		err := guard.Exclusive(context.Background(), ld.locks[i%lockers], fmt.Sprint("k", key), lockcore.Terms{}, func(ctx context.Context) error {
			return ld.inside(ctx, key)
		})
		ld.judge(err)
	}
}

// inside checks that no other hold runs, and that tokens grow.
func (ld *load) inside(ctx context.Context, key int) error {
	token, held := guard.Token(ctx, fmt.Sprint("k", key))
	ld.mu.Lock()
	if other := ld.holders[key]; held && other != nil && other.Err() == nil {
		ld.overlaps++
		if !ld.forgot.Load() {
			ld.t.Errorf("two hold k%d", key)
		}
	}
	if last := ld.tokens[key]; held && (token == last || token < last && !ld.forgot.Load()) { // of two holds that overlap, the earlier one may enter later
		ld.t.Errorf("k%d: token %d after %d", key, token, last)
	}
	ld.holders[key], ld.tokens[key] = ctx, max(token, ld.tokens[key]) //nolint:fatcontext // it does not nest
	ld.mu.Unlock()
	ld.grants.Add(1)
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.holders[key] == ctx {
		ld.holders[key] = nil
	}
	return nil
}

// judge checks how a call ended: it ran, it ran and lost its lease, or it did not run because of
// the server.
func (ld *load) judge(err error) {
	if err == nil || errors.Is(err, lockcore.ErrLost) {
		return
	}
	if !errors.Is(err, lockcore.ErrUnavailable) && !errors.Is(err, lockcore.ErrBusy) {
		ld.t.Errorf("a call came to %v", err)
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.refused++
}

// witness sends commands to the server all the time, to prove that a fault struck: calls wait until
// it is over. When ctx has ended, the channel gets the errors that witness saw.
func witness(ctx context.Context, rdb *redis.Client) <-chan string {
	heard := make(chan string, 1)
	go func() {
		all := map[string]bool{}
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, lease/10)
			if err := rdb.Set(short, "{witness}", 1, time.Minute).Err(); err != nil {
				all[err.Error()] = true
			}
			cancel()
			time.Sleep(5 * time.Millisecond)
		}
		heard <- strings.Join(slices.Collect(maps.Keys(all)), "; ")
	}()
	return heard
}

// more waits for n grants from now on.
func (ld *load) more(n int64, within time.Duration) error {
	before := ld.grants.Load()
	if !chaos.Within(within, func() bool { return ld.grants.Load() >= before+n }) {
		return fmt.Errorf("%d grants of %d in %v", ld.grants.Load()-before, n, within)
	}
	return nil
}
