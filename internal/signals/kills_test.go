package signals_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var kills = flag.Int("kills", 30, "workers that are killed, all at the same time")

// death is the point at which a worker of a role dies.
type death struct {
	role  string
	point point
	nth   int
	freed bool // its key is free then, so no process waits for the end of its lease
}

var deaths = []death{
	{"exclusive", "acquire answered", 1, false},
	{"exclusive", "before the effect", 0, false},
	{"exclusive", "after the effect", 0, false},
	{"exclusive", "renew sent", 1, false},
	{"exclusive", "renew answered", 1, false},
	{"exclusive", "renew answered", 3, false},
	{"exclusive", "release sent", 1, false},
	{"exclusive", "release answered", 1, true},
	{"once", "acquire answered", 1, false},
	{"once", "before the effect", 0, false},
	{"once", "after the effect", 0, false},
	{"once", "complete sent", 1, false},
	{"once", "complete answered", 1, true},
	{"batch", "in a batch", 0, false},
	{"batch", "rotate answered", 3, false},
	{"line", "", 0, true},
}

// Another process gets the key of a killed worker within its lease and 250 ms, whatever the point.
// It gets it sooner if the worker was a waiter or had released the key. The number of runs of a
// once key is one more than that of its takeovers, and all calls get the same record. Each key has
// a TTL, and no call is stuck.
func TestKills(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	p := newPlace(t)
	var all toll
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range *kills {
		d, key := deaths[i%len(deaths)], fmt.Sprint("kill:", i)
		wg.Go(func() {
			switch d.role {
			case "once":
				p.killOnce(&all, key, d)
			case "line":
				p.killInLine(&all, key)
			default:
				p.killHolder(&all, key, d)
			}
		})
	}
	wg.Wait()
	chaos.CheckLeftovers(p, p.rdb, 2*time.Second)
	t.Logf("%d kills in %.1f s: %d keys taken from the dead, at most %v after their death with leases of %v; %d once keys with %d runs, %d taken over; machine late by up to %v",
		all.n, time.Since(begin).Seconds(), all.abandoned, all.longest, lease, all.once, all.runs, all.takeovers, p.lateBetween(0, chaos.Now()))
	if all.n != *kills || all.abandoned == 0 || all.takeovers == 0 {
		t.Error("inconclusive")
	}
}

// toll has the sums of all kills.
type toll struct {
	mu                                  sync.Mutex
	n, abandoned, once, runs, takeovers int
	longest                             time.Duration
}

// taken judges how long after a death another process got the key.
func (p *place) taken(all *toll, key string, d death, died, granted int64, abandoned bool) {
	took := time.Duration(granted - died)
	limit := lease + recovery
	if d.freed {
		limit = recovery
	}
	if late := p.lateBetween(died, granted); took > limit+late {
		p.Errorf("%s: killed at %q: taken after %v (machine late by %v)", key, d.point, took, late)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.n++
	all.longest = max(all.longest, took)
	if abandoned {
		all.abandoned++
	}
	if abandoned == d.freed && d.role != "batch" {
		p.Errorf("%s: killed at %q: abandoned %v", key, d.point, abandoned)
	}
}

// killHolder kills a worker that holds the key, or is about to, while two others request it.
func (p *place) killHolder(all *toll, key string, d death) {
	reg := new(chaos.Register)
	w := start(p.T, p.task(task{Key: key, Role: d.role, Point: d.point, Nth: d.nth}), reg)
	m, err := w.await(opBegan, opPoint)
	if err != nil {
		p.Errorf("%s: %v", key, err)
		return
	}
	h := heirs{key: key, reg: reg}
	var wg sync.WaitGroup
	for _, locks := range p.locks {
		wg.Go(func() {
			if err := h.take(p, locks); err != nil {
				p.Errorf("%s: killed at %q: %v", key, d.point, err)
			}
		})
	}
	if m.Op != opPoint {
		m, err = w.await(opPoint)
	}
	if err != nil {
		p.Errorf("%s: %q was not reached: %v", key, d.point, err)
		m.At = 1
	}
	h.died.Store(m.At)
	wg.Wait()
	<-w.Ended
	p.taken(all, key, d, m.At, h.first, h.abandoned)
	if err := reg.Check(); err != nil {
		p.Errorf("%s: %v", key, err)
	}
}

// heirs are the callers that request the key of a worker that dies.
type heirs struct {
	key  string
	reg  *chaos.Register
	died atomic.Int64

	mu        sync.Mutex
	first     int64 // grant after the death
	abandoned bool
}

// take acquires the key repeatedly, until it was granted after the death.
func (h *heirs) take(p *place, locks *lockcore.Locker) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		at, abandoned, err := p.turn(locks, h.key, h.reg, briefly)
		if err != nil {
			return err
		}
		died := h.died.Load()
		after := died != 0 && at > died
		h.mu.Lock()
		h.abandoned = h.abandoned || abandoned
		if after && (h.first == 0 || at < h.first) {
			h.first = at
		}
		h.mu.Unlock()
		if after {
			return nil
		}
	}
	return errGone
}

func briefly() {}

// killOnce kills a worker that runs a once key. Then two others call, twice each.
func (p *place) killOnce(all *toll, key string, d death) {
	w := start(p.T, p.task(task{Key: key, Role: d.role, Point: d.point, Nth: d.nth}), new(chaos.Register))
	r := runs{key: key, values: map[string]int{}}
	m, err := w.await(opBegan, opPoint)
	if err == nil && m.Op == opBegan {
		r.n++
		m, err = w.await(opPoint)
	}
	if err != nil {
		p.Errorf("%s: %q was not reached: %v", key, d.point, err)
		return
	}
	var wg sync.WaitGroup
	for _, locks := range p.locks {
		wg.Go(func() {
			if err := errors.Join(r.call(locks), r.call(locks)); err != nil {
				p.Errorf("%s: %v", key, err)
			}
		})
	}
	wg.Wait()
	<-w.Ended
	p.taken(all, key, d, m.At, r.first, r.takeovers > 0)
	expected := 1 + r.takeovers
	if d.point == "acquire answered" { // the run of the dead worker never began
		expected = r.takeovers
	}
	if r.n != expected || len(r.values) != 1 {
		p.Errorf("%s: killed at %q: %d runs, %d takeovers, values %v", key, d.point, r.n, r.takeovers, r.values)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.once++
	all.runs += r.n
	all.takeovers += r.takeovers
}

// runs are the runs of one once key.
type runs struct {
	key string

	mu           sync.Mutex
	n, takeovers int
	first        int64          // run or replay in the test's process
	values       map[string]int // that calls got
}

func (r *runs) call(locks *lockcore.Locker) error {
	res, err := guard.OnceValue(context.Background(), locks, r.key, onceOptions, func(ctx context.Context) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.n++
		r.first = chaos.Now()
		if _, took := guard.Attempt(ctx, r.key); took {
			r.takeovers++
		}
		return "by the test", nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values[res.Value]++
	if r.first == 0 {
		r.first = chaos.Now()
	}
	return err
}

// killInLine kills the first waiter and then releases the key: the second waiter gets it.
func (p *place) killInLine(all *toll, key string) {
	le, err := p.locks[0].Acquire(context.Background(), key, p.locks[0].Terms())
	if err != nil {
		p.Error(err)
		return
	}
	w := start(p.T, p.task(task{Key: key, Role: "line"}), new(chaos.Register))
	if _, err := w.await(opWaits); err != nil {
		p.Error(err)
	}
	p.awaitLine(key, 1)
	got := make(chan int64)
	go func() {
		at, _, err := p.turn(p.locks[1], key, new(chaos.Register), briefly)
		if err != nil {
			p.Error(err)
		}
		got <- at
	}()
	p.awaitLine(key, 2)
	w.Kill()
	at := chaos.Now()
	if err := le.Release(context.Background()); err != nil {
		p.Error(err)
	}
	p.taken(all, key, death{role: "line", point: "waiting", freed: true}, at, <-got, false)
}
