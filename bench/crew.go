package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	warming int32 = iota
	measuring
	over
)

// grace is the time for workers to return at the end. A worker that does not hangs in its library.
const grace = 2 * time.Second

// turn is one operation of a worker. It calls granted when it has acquired the key.
type turn func(ctx context.Context, w *worker) error

// crew is a task whose workers do one turn after another.
type crew struct {
	phase   atomic.Int32
	began   time.Time
	window  time.Duration
	workers []*worker
	turn    turn
	witness *witness
	ctx     context.Context //nolint:containedctx // from warmUp to close, which the parent calls
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

func newCrew(n int, seen *witness, t turn) *crew {
	c := &crew{turn: t, witness: seen, began: time.Now()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for i := range n {
		c.workers = append(c.workers, &worker{crew: c, index: i})
	}
	return c
}

// newLockCrew returns the crew of most scenarios: lock, check that no more than allowed are inside,
// unlock.
func newLockCrew(j job, l locker, seen *witness) *crew {
	p := j.Point
	keys := make([]string, p.Keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", j.Prefix, i)
	}
	first := 0 // the number of the first worker of this process, so that processes begin with different keys
	for i := range j.Process {
		first += p.workersOf(i)
	}
	c := newCrew(p.workersOf(j.Process), seen, func(ctx context.Context, w *worker) error {
		key := (first + w.index) % p.Keys
		h, err := l.lock(ctx, keys[key])
		if err != nil {
			return err
		}
		w.granted()
		w.inside(key, p.Inside)
		return h.unlock(context.Background()) // a held lock is released also after the end of the run
	})
	for _, w := range c.workers {
		w.limit, w.trip = p.Limit, p.Trip
	}
	return c
}

func (c *crew) warmUp() error {
	for _, w := range c.workers {
		c.wg.Go(w.work)
	}
	return nil
}

func (c *crew) open() error {
	c.began = time.Now()
	c.phase.Store(measuring)
	return nil
}

// close first ends the measurement, and then computes its duration, so that no call that is served
// later counts.
func (c *crew) close() {
	c.phase.Store(over)
	c.window = time.Since(c.began)
}

// collect also counts the waits of calls that are not served yet. Otherwise a library would look
// better if it never serves some calls.
func (c *crew) collect(o *outcome) {
	pending := make([]time.Duration, len(c.workers))
	for i, w := range c.workers {
		if since := w.since.Load(); since != 0 {
			pending[i] = max(c.began.Add(c.window).Sub(time.Unix(0, since)), 0)
		}
	}
	c.empty()
	c.cancel()
	back := make(chan struct{})
	go func() { // ends with the last worker, or with the process
		c.wg.Wait()
		close(back)
	}()
	select {
	case <-back:
	case <-time.After(grace):
	}
	for i, w := range c.workers {
		o.Ops += w.ops
		o.Inside += w.spent
		o.Waits.mergeHistogram(&w.waits)
		o.Gaps.mergeHistogram(&w.gaps)
		if pending[i] > 0 {
			o.Waits.add(pending[i])
		}
		if w.ops == 0 && pending[i] > 0 {
			o.Unserved++
		}
	}
	o.Violations = c.witness.violations.Load()
}

// empty waits until no worker is inside a section. With some libraries the lock ends with the ctx
// of its acquisition. If that ctx were canceled first, the next worker could get the key, and that
// would count as a violation.
func (c *crew) empty() {
	for late := time.Now().Add(grace); time.Now().Before(late); time.Sleep(100 * time.Microsecond) {
		if !slices.ContainsFunc(c.workers, func(w *worker) bool { return w.within.Load() }) {
			return
		}
	}
}

// worker is one goroutine. Only that goroutine writes the counts, and only during the measurement.
type worker struct {
	crew   *crew
	index  int
	limit  int          // of its sections, see witness.enter
	since  atomic.Int64 // when the present wait began, in Unix ns; 0 without a wait
	within atomic.Bool  // inside a critical section
	turns  int
	waits  histogram
	trip   time.Duration // of the network; if it is not 0, gaps are measured
	gaps   histogram
	ops    int64
	spent  time.Duration
}

func (w *worker) work() {
	c := w.crew
	for c.phase.Load() != over {
		w.since.Store(time.Now().UnixNano())
		for c.turn(c.ctx, w) != nil { // a failed try is part of the wait
			if c.phase.Load() == over {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// granted ends the wait and counts the operation.
func (w *worker) granted() {
	if w.crew.phase.Load() == measuring {
		w.ops++
		w.waits.add(time.Duration(time.Now().UnixNano() - w.since.Load()))
	}
	w.since.Store(0)
}

// inside is the critical section. within is set before the phase is read, so no worker enters the
// section after empty has returned. The first section of a worker takes a random part of d, so that
// sections on different keys do not all end at the same time.
func (w *worker) inside(key int, d time.Duration) {
	w.within.Store(true)
	defer w.within.Store(false)
	if w.crew.phase.Load() == over {
		return
	}
	counted := w.crew.witness.enter(key, w.limit)
	if counted && w.trip > 0 {
		if gap := w.crew.witness.sinceLast(key); gap > 0 && w.crew.phase.Load() == measuring {
			w.gaps.add(gap)
		}
	}
	if d > 0 {
		if w.turns++; w.turns == 1 {
			d = rand.N(d)
		}
		start := time.Now()
		time.Sleep(d)
		if w.crew.phase.Load() == measuring {
			w.spent += time.Since(start)
		}
	}
	if counted {
		w.crew.witness.leave(key, w.limit)
	}
}
