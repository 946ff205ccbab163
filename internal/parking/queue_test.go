package parking_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

const (
	check  = 100 * time.Millisecond // between two looks of an idle worker at the queue
	lease  = 15 * time.Second       // of parkAtOnce, and the least delay of a parked task
	itself = 19 * time.Second       // the longest time until a parked task comes back by itself
	soon   = 2 * time.Second        // the longest time until a woken task has run
)

// parkAtOnce are terms under which no task waits in a worker.
var parkAtOnce = lockcore.Terms{Wait: lockcore.NoWait, Lease: lease}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queue is a queue in memory, with a middleware as package asynqmw is for asynq. Its tasks have the
// key "key" unless they say otherwise.
type queue struct {
	*testing.T
	locks   *lockcore.Locker
	heard   *locktest.Recorder
	pool    *parking.Pool
	terms   lockcore.Terms
	limit   lockcore.Limit // zero: the keys alone
	kind    event.Kind
	weights map[string]int       // of keys; default: 1
	work    time.Duration        // of a run
	skips   func(id string) bool // not nil: a middleware outside of the guard ends the task if it returns true
	mean    parking.Mean

	mu         sync.Mutex
	tasks      map[string]*task
	order      []*task       // in the order in which they were added or became pending
	block      chan struct{} // not nil: the queue does not reply until it is closed
	ran        []string      // in the order in which the runs began
	now, most  int           // runs at the same time
	slowest    time.Duration // of the deliveries
	deliveries int
	rnd        *rand.Rand // not nil: work is the mean
}

// task is a task of a queue. Its State is Pending, Running, Delayed or Other.
type task struct {
	parking.Task

	id, key string
	paused  bool // no worker takes it
}

// inBubble runs story with a queue in a bubble, on a Locker in memory.
func inBubble(t *testing.T, o lockcore.Options, story func(*queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{T: t, heard: new(locktest.Recorder), terms: parkAtOnce, kind: event.KindExclusive, tasks: map[string]*task{}}
		o.Observer = event.Join(q.heard, o.Observer)
		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Terms: o.Terms, Observer: o.Observer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // after the workers have ended
			if err := locks.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		q.locks = locks
		story(q)
	})
}

// serve starts workers. They end with the test.
func (q *queue) serve(workers int) {
	q.pool = parking.New(parking.Options{Queue: q, Name: "test", Workers: workers, Check: check, Late: check})
	stop, wg := make(chan struct{}), new(sync.WaitGroup)
	for range workers {
		wg.Go(func() {
			for {
				if t := q.next(); t != nil {
					q.deliver(t)
					continue
				}
				select {
				case <-stop:
					return
				case <-time.After(check):
				}
			}
		})
	}
	q.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
}

// add adds pending tasks of a key.
func (q *queue) add(key string, ids ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		t := &task{id: id, key: key, Task: parking.Task{State: parking.Pending}}
		q.tasks[id] = t
		q.order = append(q.order, t)
	}
}

// next returns the first task that is due, and marks it as running.
func (q *queue) next() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.order {
		if due := t.State == parking.Pending || t.State == parking.Delayed && !time.Now().Before(t.Again); due && !t.paused {
			t.State = parking.Running
			return t
		}
	}
	return nil
}

// deliver is a delivery of t to a worker.
func (q *queue) deliver(t *task) {
	ctx, began := context.Background(), time.Now()
	q.set(func() { q.deliveries++ })
	defer func() { q.set(func() { q.slowest = max(q.slowest, time.Since(began)) }) }()
	q.mu.Lock()
	skips := q.skips != nil && q.skips(t.id)
	q.mu.Unlock()
	if skips {
		q.end(t)
		return
	}
	v := q.pool.Delivery(parking.Request{Locks: q.locks, Kind: q.kind, Keys: []parking.Key{{Name: t.key, Limit: q.limit, Weight: max(q.weights[t.key], 1)}}, Terms: q.terms, Task: t.id, Mean: &q.mean})
	if v.RanAlready(ctx) {
		q.end(t)
		return
	}
	_, at, err := v.Run(ctx, q.terms, func(terms lockcore.Terms) (ran bool, err error) {
		run := func(ctx context.Context) error {
			ran = true
			defer v.Begin(ctx)()
			q.run(t)
			return nil
		}
		switch {
		case q.kind == event.KindOnce:
			_, err = guard.Once(ctx, q.locks, t.key, guard.OnceOptions{Terms: terms}, run)
		case q.limit.N > 0:
			err = guard.Limited(ctx, q.locks, t.key, q.limit, terms, run)
		default:
			err = guard.Exclusive(ctx, q.locks, t.key, terms, run)
		}
		return ran, err
	})
	switch {
	case err == nil:
		q.end(t)
	case at != nil:
		q.delay(t, at.Delay, at.Text)
	default:
		q.delay(t, time.Second, err.Error())
	}
}

func (q *queue) run(t *task) {
	q.set(func() {
		q.ran = append(q.ran, t.id)
		q.now++
		q.most = max(q.most, q.now)
	})
	work := q.work
	if q.rnd != nil {
		q.set(func() { work = work/2 + time.Duration(q.rnd.Int64N(int64(work))) })
	}
	time.Sleep(work)
	q.set(func() { q.now-- })
}

// delivered returns the number of deliveries.
func (q *queue) delivered() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.deliveries
}

func (q *queue) end(t *task) {
	q.set(func() { t.State, t.Completed = parking.Other, time.Now() })
}

func (q *queue) delay(t *task, d time.Duration, why string) {
	q.set(func() { t.State, t.Again, t.LastError = parking.Delayed, time.Now().Add(d), why })
}

// set calls change under mu.
func (q *queue) set(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
}

// Lookup implements parking.Queue.
func (q *queue) Lookup(id string) parking.Task {
	q.reply()
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.tasks[id]; t != nil {
		return t.Task
	}
	return parking.Task{State: parking.Gone}
}

// Run implements parking.Queue.
func (q *queue) Run(id string) bool {
	q.reply()
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tasks[id]
	if t == nil {
		return false
	}
	if t.State == parking.Delayed || t.State == parking.Other && t.Kept {
		t.State = parking.Pending
		i := slices.Index(q.order, t)
		q.order = append(slices.Delete(q.order, i, i+1), t)
	}
	return true
}

// reply waits while the queue does not reply.
func (q *queue) reply() {
	q.mu.Lock()
	block := q.block
	q.mu.Unlock()
	if block != nil {
		<-block
	}
}

// hold acquires an exclusive key as another holder.
func (q *queue) hold(key string) *lockcore.Lease {
	q.Helper()
	l, err := q.locks.Acquire(lockcore.WithTask(context.Background(), "the-holder"), key, lockcore.Terms{})
	if err != nil {
		q.Fatal(err)
	}
	return l
}

func (q *queue) release(l *lockcore.Lease) {
	q.Helper()
	if err := l.Release(context.Background()); err != nil {
		q.Error(err)
	}
}

// task returns the state of a task.
func (q *queue) task(id string) task {
	q.mu.Lock()
	defer q.mu.Unlock()
	return *q.tasks[id]
}

// until waits until ok returns true, for at most 5 min.
func (q *queue) until(what string, ok func() bool) {
	q.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			q.Fatalf("%s: not after 5 min; runs %v", what, q.runs())
		}
	}
}

// parked waits until the task is parked.
func (q *queue) parked(ids ...string) {
	q.Helper()
	for _, id := range ids {
		q.until(id+" is parked", func() bool {
			t := q.task(id)
			return t.State == parking.Delayed && strings.HasPrefix(t.LastError, "test: parked on ")
		})
	}
}

// done waits until the tasks have ended, and returns how long that took.
func (q *queue) done(ids ...string) time.Duration {
	q.Helper()
	began := time.Now()
	for _, id := range ids {
		q.until(id+" is done", func() bool { return q.task(id).State == parking.Other })
	}
	return time.Since(began)
}

func (q *queue) runs() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.ran)
}

// inside returns the greatest number of runs at the same time.
func (q *queue) inside() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.most
}

// backend returns the backend and its key.
func (q *queue) backend(key string) (backend.Backend, *backend.Key) {
	b := access.Of(q.locks).Backend
	k := b.Key(backend.Kind(q.kind), key)
	return b, &k
}

// entries returns the number of entries of a key.
func (q *queue) entries(key string) int {
	q.Helper()
	b, k := q.backend(key)
	s, err := b.Inspect(context.Background(), k, backend.NoRecord)
	if err != nil {
		q.Error(err)
	}
	return s.Parked
}

// park parks an entry, as another process does.
func (q *queue) park(key, entry string) {
	q.Helper()
	b, k := q.backend(key)
	r, err := b.Park(context.Background(), backend.ParkRequest{Key: k, Entry: entry, Most: 10_000, Keep: time.Hour})
	if err != nil || r.Outcome != backend.Parked {
		q.Fatal(r, err)
	}
}

// unpark executes the first step of a waker: it removes entries, and marks the next one as woken.
func (q *queue) unpark(key string, remove ...string) (woken []string) {
	q.Helper()
	b, k := q.backend(key)
	r, err := b.Unpark(context.Background(), backend.UnparkRequest{Key: k, Remove: remove, Woken: 1, Prefix: "/"})
	if err != nil {
		q.Fatal(err)
	}
	return r.Wake
}

// names returns n names of tasks.
func names(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("t", i))
	}
	return ids
}
