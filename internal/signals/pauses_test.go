package signals_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var pauses = flag.Int("pauses", 20, "workers that are stopped, all at the same time")

// pausePoints are the points at which workers are stopped: mostly those at which a stop does harm.
var pausePoints = []point{
	"after the check", "after the check", "renew answered", "after the check", "acquire answered",
	"after the check", "release sent", "after the check", "waiting", "renew sent",
}

// A worker is stopped with SIGSTOP for half a lease to three leases, at any point, and resumed. A
// resource that checks tokens refuses its late writes. A resource that does not check them accepts
// these writes. Another process gets the key after the lease, without an error. Afterwards the
// worker works like the others.
func TestPauses(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	p := newPlace(t)
	var all verdict
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range *pauses {
		d := lease/2 + lease*5/2*time.Duration(i)/time.Duration(max(*pauses-1, 1))
		wg.Go(func() { p.pauseOne(&all, fmt.Sprint("pause:", i), pausePoints[i%len(pausePoints)], d) })
	}
	wg.Wait()
	chaos.CheckLeftovers(p, p.rdb, 2*time.Second)
	t.Logf("%d pauses in %.1f s: %d late writes refused, %d overlaps in the control, %d leases lost, longest wait for a stopped holder %v over its lease, ctx canceled at most %v after the end of a pause, machine late by up to %v",
		all.n, time.Since(begin).Seconds(), all.late, all.overlaps, all.lost, all.over, all.canceled, p.lateBetween(0, chaos.Now()))
	if all.overlaps == 0 || all.late < all.overlaps || all.lost == 0 {
		t.Error("inconclusive")
	}
}

// verdict has the sums of all pauses.
type verdict struct {
	mu                      sync.Mutex
	n, late, overlaps, lost int
	over, canceled          time.Duration
}

func (v *verdict) add(reg *chaos.Register, end message, over time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n++
	_, refused, overlaps := reg.Counts()
	v.late += refused
	v.overlaps += overlaps
	v.over = max(v.over, over)
	if end.Text != "" {
		v.lost++
		v.canceled = max(v.canceled, time.Duration(end.Value)*time.Microsecond)
	}
}

// pauseOne stops one worker for d, while two others want its key.
func (p *place) pauseOne(all *verdict, key string, at point, d time.Duration) {
	reg := new(chaos.Register)
	if at == "waiting" {
		p.pauseInLine(all, key, reg, d)
		return
	}
	w := start(p.T, p.task(task{Key: key, Role: "pause", Point: at, Stop: true}), reg)
	m, err := w.await(opPoint)
	if err != nil {
		p.Errorf("%s: %q was not reached: %v", key, at, err)
		return
	}
	resumed, first := make(chan struct{}), make(chan int64)
	go func() {
		first <- p.others(key, reg, func() { // late commands of the worker meet a holder
			<-resumed
			time.Sleep(200 * time.Millisecond)
		})
	}()
	w.pause(d)
	close(resumed)
	var end message
	if at == "release sent" { // it had done its work
		_, err = w.await(opDone)
	} else if end, err = w.await(opCanceled, opDone); err == nil && end.Op != opDone {
		_, err = w.await(opDone)
	}
	if err != nil {
		p.Errorf("%s: after a pause at %q: %v", key, at, err)
	}
	over := time.Duration(<-first-m.At) - lease
	if limit := recovery + p.lateBetween(m.At, chaos.Now()); d > lease+limit && over > limit {
		p.Errorf("%s: taken %v after the lease of a stopped worker", key, over)
	}
	if err := reg.Check(); err != nil {
		p.Errorf("%s, stopped at %q for %v: %v", key, at, d, err)
	}
	all.add(reg, end, over)
}

// others acquires the key once with each Locker of p. It returns the time of the first grant.
func (p *place) others(key string, reg *chaos.Register, stay func()) int64 {
	var wg sync.WaitGroup
	granted := make([]int64, len(p.locks))
	for i, locks := range p.locks {
		wg.Go(func() {
			at, _, err := p.turn(locks, key, reg, stay)
			if err != nil {
				p.Errorf("%s: %v", key, err)
			}
			granted[i] = at
		})
	}
	wg.Wait()
	return slices.Min(granted)
}

// pauseInLine stops a waiter: another process gets the key that is reserved for it, after the
// reservation.
func (p *place) pauseInLine(all *verdict, key string, reg *chaos.Register, d time.Duration) {
	le, err := p.locks[0].Acquire(context.Background(), key, lockcore.Terms{})
	if err != nil {
		p.Error(err)
		return
	}
	w := start(p.T, p.task(task{Key: key, Role: "pause", Point: "waiting", Stop: true}), reg)
	if _, err := w.await(opWaits); err != nil {
		p.Error(err)
	}
	p.awaitLine(key, 1)
	w.Pause()
	var wg sync.WaitGroup
	var granted int64
	wg.Go(func() {
		at, _, err := p.turn(p.locks[1], key, reg, briefly)
		if err != nil {
			p.Error(err)
		}
		granted = at
	})
	p.awaitLine(key, 2)
	released := chaos.Now()
	if err := le.Release(context.Background()); err != nil {
		p.Error(err)
	}
	time.Sleep(d)
	w.Resume()
	if _, err := w.await(opDone); err != nil {
		p.Errorf("%s: after a pause as a waiter: %v", key, err)
	}
	wg.Wait()
	if took := time.Duration(granted - released); took > unheard+p.lateBetween(released, chaos.Now()) {
		p.Errorf("%s: the next waiter behind a stopped one waited %v", key, took)
	}
	if err := reg.Check(); err != nil {
		p.Error(err)
	}
	all.add(reg, message{}, 0)
}

// awaitLine waits until n processes are in the queue of key.
func (p *place) awaitLine(key string, n int) {
	if !chaos.Within(patience, func() bool {
		h, err := p.locks[0].Inspect(context.Background(), lockcore.KindExclusive, key)
		return err != nil || h.Queue >= n
	}) {
		p.Errorf("%s: not %d in its queue", key, n)
	}
}
