package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

const (
	lease    = 3 * time.Second
	stuck    = 30 * time.Second // a longer wait means that something is stuck
	hotKeys  = 8
	slowKeys = 4  // whose holders stay until the watchdog has renewed the lease
	onceUses = 16 // calls of one once key
)

// load is one run: what all workers share.
type load struct {
	*testing.T
	lockers   []*lockcore.Locker
	names     []string // of the exclusive keys: first the hot ones, last the slow ones
	registers []chaos.Register
	base      time.Time
	shared    bool // workers read and write the registers, see share
	checker   *checker

	budget   atomic.Int64  // operations left in this round
	over     chan struct{} // closed when there are none
	holds    atomic.Int32
	claims   atomic.Int64
	renewals atomic.Int64
	stale    atomic.Int64 // writes that were refused

	count     counts
	ran, took time.Duration // operations, and their check
}

// counts are the numbers of the events.
type counts struct {
	ops, grants, transfers, conflicts, entered, extended, revoked, lost, gone, unknown, completed, replayed, shares, together int
}

func newLoad(t *testing.T, keys int, lockers ...*lockcore.Locker) *load {
	t.Helper()
	l := &load{T: t, lockers: lockers, base: time.Now(), checker: newChecker(keys), registers: make([]chaos.Register, keys)}
	for i := range keys {
		l.names = append(l.names, fmt.Sprint("account:", i))
	}
	return l
}

// run makes about ops operations, and checks each round of them.
func (l *load) run(workers, ops, round int) {
	for l.count.ops < ops && len(l.checker.problem) == 0 && !l.Failed() {
		l.budget.Store(int64(min(round, ops-l.count.ops)))
		l.over = make(chan struct{})
		l.claims.Store((l.claims.Load()/onceUses+1)*onceUses - 1) // a once key lives in one round
		all := make([]*worker, workers)
		var wg sync.WaitGroup
		begin := time.Now()
		for i := range all {
			all[i] = &worker{load: l, id: int16(i), locks: l.lockers[i%len(l.lockers)]}
			wg.Go(all[i].work)
		}
		wg.Wait()
		l.ran += time.Since(begin)
		begin = time.Now()
		var events []operation
		for _, w := range all {
			events = append(events, w.events...)
		}
		l.checker.round(events)
		l.sum(events)
		l.took += time.Since(begin)
	}
}

// take takes one operation out of the budget. It returns false if none is left.
func (l *load) take() bool {
	left := l.budget.Add(-1)
	if left == 0 {
		close(l.over)
	}
	return left >= 0
}

// sum counts what has been checked: then each grant knows the one before it.
func (l *load) sum(events []operation) {
	c := &l.count
	for i := range events {
		e := &events[i]
		if e.what != lose {
			c.ops++
		}
		add := func(n *int, yes bool) {
			if yes {
				*n++
			}
		}
		add(&c.grants, e.granted())
		add(&c.transfers, e.granted() && e.token == e.prev+1)
		add(&c.shares, e.granted() && e.shared)
		add(&c.together, e.granted() && e.shared && e.joins)
		add(&c.conflicts, e.answer == busy)
		add(&c.entered, e.what == enter)
		add(&c.extended, e.what == extend && e.answer == yes)
		add(&c.revoked, e.what == leave && e.answer == revoked)
		add(&c.lost, e.what == lose)
		add(&c.gone, e.answer == gone)
		add(&c.unknown, e.answer == unknown || e.ret == never)
		add(&c.completed, e.what == complete)
		add(&c.replayed, e.answer == record)
	}
}

// judge logs the result of the run, and fails if something is wrong or too little happened.
func (l *load) judge() {
	l.Helper()
	c := l.count
	l.Logf("%d operations: %d grants (%d of them handed off), %d conflicts, %d entered again, %d extended, %d revoked, %d lost, %d waits canceled, %d completed, %d replayed, %d without an answer, %d shares (%d of them beside others or after them)",
		c.ops, c.grants, c.transfers, c.conflicts, c.entered, c.extended, c.revoked, c.lost, c.gone, c.completed, c.replayed, c.unknown, c.shares, c.together)
	l.Logf("%d renewals; run %.1f s, check %.1f s; %d violations", l.renewals.Load(), l.ran.Seconds(), l.took.Seconds(), len(l.violations()))
	for _, v := range l.violations() {
		l.Error(v)
	}
	if l.shared {
		if min(c.shares, c.grants-c.shares, c.together, c.conflicts, c.gone) <= c.ops/1000 {
			l.Error("inconclusive: too little happened")
		}
		return
	}
	least := c.ops / 1000
	if min(c.transfers, c.conflicts, c.entered, c.extended, c.replayed) <= least || c.revoked == 0 || l.renewals.Load() == 0 || c.gone == 0 {
		l.Error("inconclusive: too little happened")
	}
	if c.unknown > c.ops/10 || c.lost > c.ops/10 { // a busy machine causes some; they are judged too
		l.Error("inconclusive: too many operations without an answer")
	}
}

// violations returns the violations in the histories and the registers.
func (l *load) violations() []string {
	all := l.checker.problem
	for i := range l.registers {
		if err := l.registers[i].Check(); err != nil {
			all = append(all, fmt.Sprintf("%s: %v", l.names[i], err))
		}
	}
	if n := l.stale.Load(); n > 0 {
		all = append(all, fmt.Sprintf("%d writes of holders were refused as late", n))
	}
	return all
}

// Start makes the load, with Event and Traceparent, the Observer of its Lockers. It counts
// renewals, and notes releases that got no reply.
func (l *load) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }

// Traceparent returns "".
func (l *load) Traceparent(context.Context) string { return "" }

// Event is called by the goroutine of the worker for the release of its hold.
func (l *load) Event(ctx context.Context, e event.Event) {
	switch e := e.(type) {
	case event.RenewPass:
		l.renewals.Add(int64(e.Kept))
	case event.Released:
		if w, ok := ctx.Value(workerKey{}).(*worker); ok && e.Err != nil {
			w.unanswered = true
		}
	}
}

type workerKey struct{}

// chance returns true once in times calls, on average.
func chance(times int) bool { return rand.IntN(times) == 0 }
