package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

const (
	lease    = 3 * time.Second
	patience = time.Minute     // for what must happen at some time
	aimTime  = 5 * time.Second // for a worker to reach the point of its order; then it is stopped or killed where it is
)

// run is one run of a scenario.
type run struct {
	*testing.T
	*oracle
	scenario
	control *redistest.Control
	servers
	task     task          // of all workers
	journal  *os.File      // to which the workers write
	whole    chan struct{} // closed when all of it has been read
	slots    []*slot
	counting *counting // of load.Rates
	names    int
	moved    int // keys of slots of a cluster

	lockersOnce sync.Once
	lockers     []*lockcore.Locker // of the test
}

// slot is a worker, or its successor after it was killed.
type slot struct {
	*process.Process
	r          *run
	n          int
	generation int
	name       string // of the worker
	task       task
	links      []*redistest.Relay // none, or one between it and each server
}

// start starts the servers and the workers, and waits until their calls begin.
func (s scenario) start(t *testing.T) *run {
	t.Helper()
	r := &run{T: t, scenario: s, control: redistest.NewControl(t), whole: make(chan struct{})}
	r.oracle = newOracle(func(from, to int64) time.Duration {
		return r.control.Between(time.Unix(0, from), time.Unix(0, to))
	})
	if s.on == nil {
		s.on = oneServer
	}
	s.on(r)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.journal = out
	go func() { // ends with the last worker
		defer close(r.whole)
		defer func() { _ = in.Close() }()
		if err := process.ReadLines(in, r.oracle.read); err != nil {
			t.Errorf("the journal: %v", err)
		}
	}()
	t.Cleanup(r.end)
	for range s.procs {
		r.join()
	}
	return r
}

// join starts one more worker.
func (r *run) join() *slot {
	r.Helper()
	p := &slot{r: r, n: r.names, task: r.task}
	r.names++
	p.task.N, p.task.Of = p.n, r.procs
	p.task.Lease, p.task.Wait, p.task.Load, p.task.NoGroups = lease, r.wait, r.load, r.noGroups
	if r.links {
		p.task.Addrs = nil
		for _, addr := range r.task.Addrs {
			link := redistest.Proxy(r, addr)
			p.links = append(p.links, link)
			p.task.Addrs = append(p.task.Addrs, "127.0.0.1:"+link.Port())
		}
	}
	if r.load.Listen != "" {
		p.task.Load.Listen = freeAddr(r.T)
	}
	r.mu.Lock()
	r.slots = append(r.slots, p)
	r.mu.Unlock()
	p.begin()
	return p
}

// begin starts the slot's next process, and waits until its calls begin.
func (p *slot) begin() {
	p.r.Helper()
	p.generation++
	p.name = fmt.Sprintf("w%d.%d", p.n, p.generation)
	p.task.Name = p.name
	p.Process = process.Start(p.r, p.task, p.r.journal)
	p.r.await("a worker is ready", func(o *oracle) bool { return o.ready[p.name] })
}

// await waits until ok, which reads the oracle, returns true. The test fails if that takes too long,
// and goes on, because the caller may be another goroutine.
func (r *run) await(what string, ok func(*oracle) bool) {
	r.Helper()
	if !r.within(patience, ok) {
		r.Errorf("not within %v: %s", patience, what)
	}
}

func (r *run) within(bound time.Duration, ok func(*oracle) bool) bool {
	return chaos.Within(bound, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return ok(r.oracle)
	})
}

// each waits until every key of load.Any has had n holds since the last fault of a server.
func (r *run) each(n int) {
	r.Helper()
	r.await(fmt.Sprintf("%d holds of each key", n), func(o *oracle) bool {
		for i := range keys {
			if o.since[keyName(i)] < n {
				return false
			}
		}
		return true
	})
}

// fault notes that servers fail from now on, until healed is called.
func (r *run) fault() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, process.Now())
	clear(r.since)
}

func (r *run) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healed = append(r.healed, process.Now())
}

// atPoint sends the order, and waits until the worker is at its point. It returns false if it does
// not get there: the order is canceled then, so that the worker does not act on it later.
func (p *slot) atPoint(o order) bool {
	text, err := json.Marshal(o)
	if err != nil {
		p.r.Error(err)
	}
	p.r.mu.Lock()
	before := p.r.points[p.name].At
	p.r.mu.Unlock()
	p.Tell(string(text))
	heard := func(r *oracle) bool { return r.points[p.name].At > before }
	if !p.r.within(aimTime, heard) {
		p.Tell(cancel)
		p.r.within(aimTime, heard)
	}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	last := p.r.points[p.name]
	return last.At > before && last.Op == opPoint
}

// kill kills the worker at the point of o, or at once if the point is "" or is not reached in time.
// It returns the time before that.
func (p *slot) kill(o order) (at int64) {
	d := &death{}
	reached := o.Point != "" && p.atPoint(o)
	p.r.mu.Lock()
	d.at = process.Now()
	p.r.blind = append(p.r.blind, d.at)
	if reached {
		d.at, d.point = p.r.points[p.name].At, o.Point
	}
	p.r.deaths[p.name] = d
	p.r.mu.Unlock()
	p.Kill()
	p.r.mu.Lock()
	d.gone = process.Now()
	p.r.mu.Unlock()
	if !p.Killed() {
		p.r.Errorf("%s ended by itself: %v", p.name, p.Err)
	}
	return d.at
}

// stop stops the worker for d, at the point of o, or at once if the point is "" or is not reached in
// time.
func (p *slot) stop(o order, d time.Duration) {
	o.Stop = true
	reached := o.Point != "" && p.atPoint(o)
	p.note()
	if !reached {
		p.Pause()
	}
	p.r.mu.Lock()
	p.r.disturbed[p.name] = true
	p.r.mu.Unlock()
	time.Sleep(d)
	p.note()
	p.Tell(`"go on"`)
	p.Resume()
	p.r.mu.Lock()
	p.r.resumed[p.name] = append(p.r.resumed[p.name], process.Now())
	p.r.mu.Unlock()
}

// cut cuts the worker off from the only server for d. The judge accepts that its leases are lost.
func (p *slot) cut(d time.Duration) {
	p.note()
	p.r.mu.Lock()
	p.r.disturbed[p.name] = true
	p.r.mu.Unlock()
	p.links[0].Silence()
	time.Sleep(d)
	p.links[0].Heal()
	p.note()
}

// note notes that something happens to a worker at an unknown point. A known point is that of one
// key: the worker may have just acquired another one, and that hold is in no line.
func (p *slot) note() {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.r.blind = append(p.r.blind, process.Now())
}

// disturb calls fault for workers in random order, for at most beside of them at the same time,
// until two leases before the end of d. Each of them works for a moment between two faults.
func (r *run) disturb(d time.Duration, beside int, fault func(p *slot, until time.Time)) {
	until := time.Now().Add(d - 2*lease)
	idle, turns := make(chan *slot, len(r.slots)), make(chan struct{}, beside)
	for _, i := range rand.Perm(len(r.slots)) {
		idle <- r.slots[i]
	}
	var wg sync.WaitGroup
	for time.Sleep(lease / 3); time.Now().Before(until); {
		turns <- struct{}{}
		p := <-idle
		wg.Go(func() {
			fault(p, until)
			time.Sleep(rand.N(lease / 3))
			idle <- p
			<-turns
		})
	}
	wg.Wait()
	time.Sleep(2 * lease)
}

// end ends the workers, and waits until the journal is complete.
func (r *run) end() {
	r.Helper()
	for _, p := range r.slots {
		p.Close()
	}
	for _, p := range r.slots {
		select {
		case <-p.Ended:
		case <-time.After(2 * patience):
			r.Errorf("%s does not end", p.name)
			p.Kill()
		}
	}
	_ = r.journal.Close() // once; later calls do nothing
	<-r.whole
}

// finish ends the run and judges it.
func (r *run) finish() {
	r.Helper()
	r.end()
	must := r.must
	must.lease = lease
	v := r.judge(must)
	for _, p := range r.slots {
		if _, reported := r.reports[p.name]; !reported && r.deaths[p.name] == nil {
			v.fail("report", "%s ended without a report: %v", p.name, p.Err)
		}
	}
	r.Logf("%s: %d holds, %d processes killed, %d disturbed; %d overlaps of at most %v; a key was free for at most %v while a call waited, %d times after a hold that is in no line; longest call %v",
		r.name, len(r.holds), len(r.deaths), len(r.disturbed), v.overlaps, v.longestOverlap, v.longestIdle, v.hidden, v.longestCall)
	r.Logf("%s: %d accesses refused by registers, %d writes too late for one without tokens; calls %v", r.name, v.rejected, v.overtaken, v.counts)
	if v.onceKeys > 0 {
		r.Logf("%s: %d once keys, %d answers, %d replays, %d runs, %d killed in the middle, %d takeovers, %d keys of unknown outcome, %d second runs, %d attempts unseen; longest wait for a dead process %v",
			r.name, v.onceKeys, v.answers, v.replays, v.runs, v.midRun, v.takeovers, v.unknown, v.secondRuns, v.unseen, v.deadWait)
	}
	if len(r.masters) > 0 {
		r.tellQuorum(v)
		r.judgeLost(v)
	}
	r.report(v)
	if r.proves != nil && !r.proves(r, v) {
		r.Error("inconclusive: see proves of the scenario")
	}
}

const tellFirst = 5 // mistakes that each check prints

func (r *run) report(v *verdict) {
	r.Helper()
	checks := map[string]int{}
	slices.Sort(v.wrong)
	for _, w := range v.wrong {
		check := checkOf(w)
		if checks[check]++; checks[check] <= tellFirst {
			r.Error(w)
		}
	}
	if len(checks) > 0 {
		r.Errorf("mistakes by check: %v; the machine was late by %v", checks, r.control.Late(time.Time{}))
	}
}

// checkOf returns the check that found a mistake.
func checkOf(wrong string) string {
	check, _, _ := strings.Cut(wrong, ":")
	return check
}

// background is the ctx of what the test itself does with a Locker.
func background() context.Context { return context.Background() }
