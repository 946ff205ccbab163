package docs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// pod is what a process of the program has.
type pod struct {
	rdb   *redis.Client
	locks *lockcore.Locker
}

// version is a release of the program: it runs work under the lock of that release.
type version func(ctx context.Context, p pod, account string, work func(context.Context) error) error

// oldLock stands for the lock that a program had before. It sets a key that expires, and deletes it
// if the value is still its own. A worker that finds the key tries again.
func oldLock(ctx context.Context, rdb *redis.Client, account string, work func(context.Context) error) error {
	key, value := "lock:"+account, rand.Text()
	for {
		ok, err := rdb.SetNX(ctx, key, value, time.Minute).Result()
		if err != nil {
			return err
		}
		if ok {
			break
		}
		time.Sleep(3 * time.Millisecond)
	}
	defer compareAndDelete.Run(ctx, rdb, []string{key}, value)
	return work(ctx)
}

var compareAndDelete = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

func before(ctx context.Context, p pod, account string, work func(context.Context) error) error {
	return oldLock(ctx, p.rdb, account, work)
}

// both is the first deploy: the old lock outside, holdfast inside.
func both(ctx context.Context, p pod, account string, work func(context.Context) error) error {
	return oldLock(ctx, p.rdb, account, func(ctx context.Context) error {
		return guard.Exclusive(ctx, p.locks, "account:"+account, lockcore.Terms{Wait: time.Minute}, work)
	})
}

// alone is the second deploy: holdfast alone.
func alone(ctx context.Context, p pod, account string, work func(context.Context) error) error {
	return guard.Exclusive(ctx, p.locks, "account:"+account, lockcore.Terms{Wait: time.Minute}, work)
}

// ledger is where the jobs of a test count.
type ledger struct {
	*testing.T
	jobs     atomic.Int64 // that ran
	inside   atomic.Int32 // jobs that run now
	overlaps atomic.Int64
}

// add adds 1 to the counter in Redis, with a read, a pause and a write, so that two overlapping
// jobs lose an addition.
func (a *ledger) add(ctx context.Context, rdb *redis.Client) error {
	if a.inside.Add(1) > 1 {
		a.overlaps.Add(1)
	}
	defer a.inside.Add(-1)
	n, err := rdb.Get(ctx, "counter").Int64()
	if err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	a.jobs.Add(1)
	return rdb.Set(ctx, "counter", n+1, 0).Err()
}

// serve runs one job after the other on a new pod until stop is called, which waits for the last
// job.
func (a *ledger) serve(server *locktest.Server, run version) (stop func()) {
	p := pod{redis.NewClient(server.Options()), server.Locker(lockcore.Options{})}
	a.Cleanup(func() { _ = p.rdb.Close() })
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			err := run(context.Background(), p, "42", func(ctx context.Context) error { return a.add(ctx, p.rdb) })
			if err != nil {
				a.Error(err)
				return
			}
			time.Sleep(4 * time.Millisecond) // longer than between two tries of oldLock, so that the next try may be another pod's
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// deploy starts three pods of the first release. For each further release it replaces the pods one
// at a time. So three or four pods run at every moment, with the same or two successive releases.
// It returns the jobs that ran, the counter, and the jobs that began while another one ran.
func deploy(t *testing.T, releases ...version) (jobs, counter, overlaps int64) {
	t.Helper()
	a, server := &ledger{T: t}, locktest.NewServer(t)
	rdb := redis.NewClient(server.Options())
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "counter", 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	var stops []func()
	for range 3 {
		stops = append(stops, a.serve(server, releases[0]))
	}
	for _, next := range releases[1:] {
		for range 3 {
			stops = append(stops, a.serve(server, next))
			time.Sleep(200 * time.Millisecond)
			stops[0]()
			stops = stops[1:]
			time.Sleep(200 * time.Millisecond)
		}
	}
	for _, stop := range stops {
		stop()
	}
	counter, err := rdb.Get(t.Context(), "counter").Int64()
	if err != nil {
		t.Fatal(err)
	}
	return a.jobs.Load(), counter, a.overlaps.Load()
}

// Two deploys replace an old lock by holdfast, and two more go back. At every moment all running
// pods share a lock, so no jobs overlap and no addition is lost.
func TestTwoDeploys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, counter, overlaps := deploy(t, before, both, alone, both, before)
		t.Logf("%d jobs", jobs)
		if jobs < 100 || counter != jobs || overlaps != 0 {
			t.Errorf("%d jobs, %d overlaps, the counter is %d", jobs, overlaps, counter)
		}
	})
}

// The mistake: one deploy replaces the old lock by holdfast. While it lasts, old and new pods have
// no lock in common. Jobs overlap, and additions are lost.
func TestTwoDeploys_incorrect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, counter, overlaps := deploy(t, before, alone)
		t.Logf("%d jobs, %d overlaps, %d additions lost", jobs, overlaps, jobs-counter)
		if overlaps == 0 || counter >= jobs {
			t.Errorf("%d jobs, %d overlaps, the counter is %d", jobs, overlaps, counter)
		}
	})
}

// storeBefore stands for the store that a program had before: it marks an order as done for a day.
func storeBefore(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	done, err := p.rdb.Exists(ctx, "done:"+order).Result()
	if err != nil || done > 0 {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	return p.rdb.Set(ctx, "done:"+order, "", 24*time.Hour).Err()
}

// storeBoth is the first deploy: it reads the old store, and continues to write it.
func storeBoth(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	done, err := p.rdb.Exists(ctx, "done:"+order).Result()
	if err != nil || done > 0 {
		return err // a pod of the old release has done it
	}
	_, err = guard.Once(ctx, p.locks, "order:"+order, guard.OnceOptions{Keep: 24 * time.Hour}, func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return err
		}
		return p.rdb.Set(ctx, "done:"+order, "", 24*time.Hour).Err() // for the pods of the old release
	})
	return err
}

// storeAlone is the second deploy: holdfast alone.
func storeAlone(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	_, err := guard.Once(ctx, p.locks, "order:"+order, guard.OnceOptions{Keep: 24 * time.Hour}, work)
	return err
}

// markBefore stands for a worker that marks an order before it works under a lock: at most once.
func markBefore(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	return oldLock(ctx, p.rdb, account(order), func(ctx context.Context) error {
		first, err := p.rdb.SetNX(ctx, "captured:"+order, "", 24*time.Hour).Result()
		if err != nil || !first {
			return err
		}
		return work(ctx)
	})
}

// markBoth is the first deploy: the old lock outside, the old mark inside of all guards.
func markBoth(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	return both(ctx, p, account(order), func(ctx context.Context) error {
		o := guard.OnceOptions{Mode: guard.AtMostOnce, Keep: 24 * time.Hour}
		_, err := guard.Once(ctx, p.locks, "order:"+order, o, func(ctx context.Context) error {
			first, err := p.rdb.SetNX(ctx, "captured:"+order, "", 24*time.Hour).Result()
			if err != nil || !first {
				return err // with !first a pod of the old release has marked it
			}
			return work(ctx)
		})
		return err
	})
}

// markAlone is the second deploy: holdfast alone.
func markAlone(ctx context.Context, p pod, order string, work func(context.Context) error) error {
	return alone(ctx, p, account(order), func(ctx context.Context) error {
		_, err := guard.Once(ctx, p.locks, "order:"+order, guard.OnceOptions{Mode: guard.AtMostOnce, Keep: 24 * time.Hour}, work)
		return err
	})
}

// account returns the account of an order.
func account(order string) string { return order[:1] }

// orders counts how often the work of each order ran.
type orders struct {
	*testing.T
	pod
	runs map[string]int
}

func newOrders(t *testing.T) *orders {
	t.Helper()
	server := locktest.NewServer(t)
	o := &orders{T: t, pod: pod{redis.NewClient(server.Options()), server.Locker(lockcore.Options{})}, runs: map[string]int{}}
	t.Cleanup(func() { _ = o.rdb.Close() })
	return o
}

// deliver delivers orders to pods of a release.
func (o *orders) deliver(run version, orders ...int) {
	o.Helper()
	for _, n := range orders {
		order := strconv.Itoa(n)
		err := run(o.Context(), o.pod, order, func(context.Context) error {
			o.runs[order]++
			return nil
		})
		if err != nil {
			o.Error(err)
		}
	}
}

// Each order is delivered to pods of two releases that run at the same time, first to the one and
// then to the other. Its work runs once.
func TestStoreTwoDeploys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrders(t)
		o.deliver(storeBefore, 1)
		o.deliver(storeBoth, 1, 2)
		o.deliver(storeBefore, 2)
		time.Sleep(23 * time.Hour) // the last old pod has ended, and its marks have not
		o.deliver(storeBoth, 1, 3)
		time.Sleep(2 * time.Hour) // its last mark has expired
		o.deliver(storeAlone, 3, 4)
		o.deliver(storeBoth, 4, 5)
		o.deliver(storeAlone, 5)
		for order, runs := range o.runs {
			if runs != 1 {
				t.Errorf("order %s ran %d times", order, runs)
			}
		}
		if len(o.runs) != 5 {
			t.Errorf("%d orders ran", len(o.runs))
		}
	})
}

// The mistake: the old store is dropped before its last mark has expired. What an old pod has done
// runs again.
func TestStoreTwoDeploys_incorrect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOrders(t)
		o.deliver(storeBefore, 1)
		o.deliver(storeBoth, 1)
		time.Sleep(time.Hour)
		o.deliver(storeAlone, 1)
		if o.runs["1"] != 2 {
			t.Errorf("the order ran %d times", o.runs["1"])
		}
	})
}

// A lock and a mark before the work: each order is delivered three times, to pods of two releases at
// the same time. Its work runs once, and no two orders of an account overlap. A call that found its
// account busy has marked nothing.
func TestMarkTwoDeploys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewServer(t)
		var inside [10]atomic.Int32 // for each account
		var runs [100]atomic.Int32  // for each order
		deliver := func(orders []int, releases ...version) {
			var wg sync.WaitGroup
			for _, run := range releases {
				p := pod{redis.NewClient(server.Options()), server.Locker(lockcore.Options{})}
				t.Cleanup(func() { _ = p.rdb.Close() })
				for _, n := range orders {
					wg.Go(func() {
						err := run(t.Context(), p, strconv.Itoa(n), func(context.Context) error {
							if inside[n/10].Add(1) > 1 {
								t.Errorf("two orders of account %d at the same time", n/10)
							}
							defer inside[n/10].Add(-1)
							runs[n].Add(1)
							time.Sleep(10 * time.Millisecond)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
			wg.Wait()
		}
		deliver([]int{10, 11, 12, 20, 21}, markBefore, markBoth, markBefore)
		deliver([]int{11, 13, 14, 21, 22}, markBoth, markBoth, markBefore)
		time.Sleep(25 * time.Hour) // the old marks have expired
		deliver([]int{30, 31, 40}, markBoth, markAlone, markAlone)

		p := pod{redis.NewClient(server.Options()), server.Locker(lockcore.Options{})}
		defer p.rdb.Close()
		release := locktest.Hold(t, p.locks, "account:5")
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		work := func(context.Context) error { runs[50].Add(1); return nil }
		if err := markBoth(soon, p, "50", work); !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("while the account is busy: %v", err)
		}
		release()
		if err := markBoth(t.Context(), p, "50", work); err != nil {
			t.Error(err)
		}
		for _, n := range []int{10, 11, 12, 13, 14, 20, 21, 22, 30, 31, 40, 50} {
			if got := runs[n].Load(); got != 1 {
				t.Errorf("order %d ran %d times", n, got)
			}
		}
	})
}
