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

const (
	longWait = 10 * time.Second // a call that waits longer counts as unserved
	grace    = 2 * time.Second  // for workers to return at the end; a worker that does not hangs in its library
)

// turn is one operation of a worker. It calls granted when it has acquired the key.
type turn func(ctx context.Context, w *worker) error

// crew is a task whose workers do one turn after another.
type crew struct {
	phase   atomic.Int32
	began   time.Time
	window  time.Duration
	workers []*worker
	turn    turn
	pairs   bool // a turn is timed from its call to its return
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
		key := p.keyOf(first + w.index)
		h, err := l.lock(ctx, keys[key])
		if err != nil {
			return err
		}
		w.granted(1)
		w.inside(key, p.Inside)
		return h.unlock(context.Background()) // a held lock is released also after the end of the run
	})
	for _, w := range c.workers {
		w.limit = p.Limit
	}
	c.pairs = p.Pairs
	return c
}

// keyOf returns the next key of worker i. If Shared is set, that percentage of the operations uses
// the last key.
func (p point) keyOf(i int) int {
	if p.Shared == 0 {
		return i % p.Keys
	}
	if rand.IntN(100) < p.Shared {
		return p.Keys - 1
	}
	return i % (p.Keys - 1)
}

func (c *crew) warmUp() error {
	for _, w := range c.workers {
		c.wg.Go(w.work)
	}
	return nil
}

func (c *crew) open() {
	c.began = time.Now()
	c.phase.Store(measuring)
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
	var pairs waits
	for i, w := range c.workers {
		pairs.mergeHistogram(&w.pairs)
		o.Ops += w.ops
		o.Errors += w.failed
		o.Inside += w.spent
		o.Waits.mergeHistogram(&w.waits)
		if pending[i] > 0 {
			o.Waits.add(pending[i])
		}
		if w.unserved(pending[i], c.window) {
			o.Unserved++
		}
	}
	if len(pairs.Counts) > 0 { // a short run may have no pair
		o.Extra[pairP50US], o.Extra[pairP99US] = us(pairs.quantile(0.5)), us(pairs.quantile(0.99))
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
	pairs  histogram
	ops    int64
	failed int64
	spent  time.Duration
}

func (w *worker) work() {
	c := w.crew
	for c.phase.Load() != over {
		start := time.Now()
		w.since.Store(start.UnixNano())
		for c.turn(c.ctx, w) != nil { // a failed try is part of the wait
			if c.phase.Load() == over {
				return
			}
			if c.phase.Load() == measuring {
				w.failed++
			}
			time.Sleep(time.Millisecond)
		}
		if c.pairs && c.phase.Load() == measuring {
			w.pairs.add(time.Since(start))
		}
	}
}

// granted ends the wait and counts n operations that shared it.
func (w *worker) granted(n int64) {
	if w.crew.phase.Load() == measuring {
		w.ops += n
		w.waits.add(time.Duration((time.Now().UnixNano() - w.since.Load()) / n))
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

// unserved reports whether a call of the worker waited for longer than longWait. In a window
// shorter than longWait, it reports whether the worker was never served and waits at the end.
func (w *worker) unserved(pending, window time.Duration) bool {
	if window >= longWait {
		return max(w.waits.max, pending) > longWait
	}
	return w.ops == 0 && pending > 0
}
