package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/proof/chaos"
)

// rules are what a scenario must keep. The zero rules are those of processes that fail while the
// server works.
type rules struct {
	lease      time.Duration
	overlaps   bool          // two may hold a key after a fault of a server, for at most a lease
	secondRuns bool          // a once key from before a fault of a server may run again
	lag        time.Duration // so long a primary that was replaced may still accept records
	gap        time.Duration // in which a key may be free while calls wait; default: a lease and recovery
	longest    time.Duration // of a call besides its handler; 0: not bounded
	pause      time.Duration // in which each process gets a hold; 0: not bounded
	fewLost    bool          // no more leases are lost than servers fail
	permits    []string      // outcomes of calls beside ok, canceled, refused and busy
	even       bool          // all processes get an equal part of the key "hot"
}

// oracle reads the journal, and judges it in the end. It knows nothing of Redis.
type oracle struct {
	late func(from, to int64) time.Duration // by how much the machine was late

	mu        sync.Mutex
	holds     []*hold
	open      map[string]*hold // by process and ID
	registers map[string]*chaos.Register
	rejected  map[string]int // accesses to a register that it refused, by process
	since     map[string]int // holds of each key since the last fault of a server
	heldBy    map[string]int // holds, by process
	hotBy     map[string]int // of them, those of the key "hot"
	runs      []line         // of once keys
	answers   map[string][]answer
	asked     map[string]int64 // time of the first HTTP request for a key
	faults    []line
	slow      []line
	latest    []line           // of tasks under Latest
	triggered map[string]int64 // time before each of them was enqueued
	reports   map[string]map[string]int
	points    map[string]line    // of a process: its last point
	ready     map[string]bool    // processes
	deaths    map[string]*death  // by process
	disturbed map[string]bool    // processes that were stopped or cut off
	touched   map[string][]int64 // times at which a process stopped or died at a point of the key
	resumed   map[string][]int64 // times at which a process went on after a stop
	blind     []int64            // times at which one stopped, died or went on: it may have just acquired a key, in no line
	failed    []int64            // times at which servers failed,
	healed    []int64            // and at which they served again
}

// death is a process that was killed.
type death struct {
	point string // "" at a random moment
	at    int64  // before the kill
	gone  int64  // after it
}

func newOracle(late func(from, to int64) time.Duration) *oracle {
	return &oracle{
		late: late, open: map[string]*hold{}, registers: map[string]*chaos.Register{}, rejected: map[string]int{}, since: map[string]int{},
		heldBy: map[string]int{}, hotBy: map[string]int{}, answers: map[string][]answer{}, asked: map[string]int64{}, reports: map[string]map[string]int{}, points: map[string]line{},
		ready: map[string]bool{}, deaths: map[string]*death{}, disturbed: map[string]bool{}, touched: map[string][]int64{}, resumed: map[string][]int64{}, triggered: map[string]int64{},
	}
}

// read adds a line of the journal.
func (o *oracle) read(l line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := fmt.Sprint(l.Proc, " ", l.ID)
	switch l.Op {
	case opReady:
		o.ready[l.Proc] = true
	case opHold:
		h := &hold{proc: l.Proc, key: l.Key, limit: l.Limit, weight: l.Weight, token: l.Token, called: l.Called, seen: l.At, valid: l.At}
		o.holds, o.open[id] = append(o.holds, h), h
		o.since[l.Key]++
		o.heldBy[l.Proc]++
		if l.Key == "hot" {
			o.hotBy[l.Proc]++
		}
		if l.Limit == 0 {
			var ok bool
			h.read, ok = o.register(l.Key).Read(l.Token, h)
			o.count(l.Proc, ok)
		}
	case opValid, opEffect:
		h := o.open[id]
		if h == nil {
			o.faults = append(o.faults, line{Proc: l.Proc, At: l.At, Text: "an effect without a hold"})
			return
		}
		h.valid = max(h.valid, l.Valid)
		if l.Op == opEffect {
			h.over, h.lost = true, l.Valid == 0
			delete(o.open, id)
			if h.limit == 0 {
				o.count(l.Proc, o.register(h.key).Write(h.token, h, h.read+1))
			}
		}
	case opGranted, opBegun, opEnded, opGaveUp:
		o.runs = append(o.runs, l)
	case opAnswer:
		o.answers[l.Key] = append(o.answers[l.Key], answer{kind: l.Text, sent: l.Called, got: l.At, run: l.Run, sum: l.Sum, replayed: l.Replayed})
	case opCanceled:
		o.points[l.Proc] = l
	case opPoint:
		o.points[l.Proc] = l
		if l.Key == "" {
			o.blind = append(o.blind, l.At)
		}
		o.touched[l.Key] = append(o.touched[l.Key], l.At)
	case opBegan, opSuccess, opSettled:
		o.latest = append(o.latest, l)
	case opSlow:
		o.slow = append(o.slow, l)
	case opFault:
		o.faults = append(o.faults, l)
	case opReport:
		o.reports[l.Proc] = l.Counts
	}
}

func (o *oracle) register(key string) *chaos.Register {
	r := o.registers[key]
	if r == nil {
		r = new(chaos.Register)
		o.registers[key] = r
	}
	return r
}

func (o *oracle) count(proc string, accepted bool) {
	if !accepted {
		o.rejected[proc]++
	}
}

// failedBefore reports whether a server had failed before a time.
func (o *oracle) failedBefore(at int64) bool { return len(o.failed) > 0 && o.failed[0] <= at }

// verdict is the result. The first word of each sentence of wrong names the check.
type verdict struct {
	wrong  []string
	counts map[string]int // outcomes of calls, of the processes that ended by themselves

	overlaps, hidden            int // hidden: waits for a hold that is in no line
	longestOverlap, longestIdle time.Duration
	longestCall, longestPause   time.Duration
	rejected, overtaken         int // accesses to a register that it refused, and writes that one without tokens would have accepted too late
	onceCounts
}

func (v *verdict) fail(check, format string, args ...any) {
	v.wrong = append(v.wrong, check+": "+fmt.Sprintf(format, args...))
}

// judge is called when the journal is complete.
func (o *oracle) judge(must rules) *verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	must.gap = cmp.Or(must.gap, must.lease+recovery)
	v := &verdict{counts: map[string]int{}}
	for _, times := range [][]int64{o.blind, o.failed, o.healed} {
		slices.Sort(times)
	}
	for _, l := range o.faults {
		if d := o.deaths[l.Proc]; d == nil || l.At < d.at {
			v.fail("fault", "%s: %s", l.Proc, l.Text)
		}
	}
	o.judgeHolds(v, must)
	o.judgeRegisters(v)
	o.judgeOnce(v, must)
	o.judgeLatest(v)
	o.judgeCalls(v, must)
	return v
}

// judgeRegisters checks that a resource that checks tokens lost no write. It refuses accesses only
// of processes that were stopped, or after a fault of a server.
func (o *oracle) judgeRegisters(v *verdict) {
	for key, r := range o.registers {
		if err := r.Check(); err != nil {
			v.fail("register", "%s: %v", key, err)
		}
		_, refused, overlaps := r.Counts()
		v.rejected, v.overtaken = v.rejected+refused, v.overtaken+overlaps
	}
	for proc, n := range o.rejected {
		if !o.disturbed[proc] && len(o.failed) == 0 {
			v.fail("register", "%d accesses of %s were refused, and it was never stopped", n, proc)
		}
	}
}

// judgeCalls checks the outcomes of calls.
func (o *oracle) judgeCalls(v *verdict, must rules) {
	for proc, counts := range o.reports {
		for what, n := range counts {
			v.counts[what] += n
			if slices.Contains([]string{"lost", "unavailable", "acks", "unrecorded"}, what) && !slices.Contains(must.permits, what) && !o.disturbed[proc] {
				v.fail("outcome", "%d calls of %s: %s", n, proc, what)
			}
		}
	}
	for _, l := range o.slow {
		took := time.Duration(l.Valid)
		v.longestCall = max(v.longestCall, took)
		if must.longest > 0 && took > must.longest+o.late(l.Called, l.At) {
			v.fail("stuck", "a call of %s took %v: %s", l.Proc, took, l.Text)
		}
	}
	if must.even {
		o.judgeEven(v)
	}
	if lost := v.counts["lost"]; must.fewLost && lost > len(o.failed) {
		v.fail("lost", "%d leases, and only %d faults of servers", lost, len(o.failed))
	}
	if must.pause > 0 {
		o.judgeProgress(v, must)
	}
}

// judgeProgress checks that each process that ended by itself got holds all the time.
func (o *oracle) judgeProgress(v *verdict, must rules) {
	last, end := map[string]int64{}, int64(0)
	for proc := range o.reports {
		last[proc] = 0
	}
	wait := func(proc string, at int64) {
		since := last[proc]
		if paused := time.Duration(at - since); since > 0 {
			v.longestPause = max(v.longestPause, paused)
			if paused > must.pause && paused > must.pause+o.late(since, at) {
				v.fail("progress", "%s got no hold for %v", proc, paused)
			}
		}
	}
	for _, h := range o.holds {
		wait(h.proc, h.seen)
		last[h.proc], end = h.seen, max(end, h.seen)
	}
	for proc := range o.reports {
		if wait(proc, end); last[proc] == 0 {
			v.fail("progress", "%s got no hold", proc)
		}
	}
}

const evenShare = 0.8 // of the mean: the least part of the hot key that a process must have

// judgeEven compares the processes that ended by themselves, so they were there all the time.
func (o *oracle) judgeEven(v *verdict) {
	least, sum := -1, 0
	for proc := range o.reports {
		n := o.hotBy[proc]
		sum += n
		if least < 0 || n < least {
			least = n
		}
	}
	if float64(least) < evenShare*float64(sum)/float64(max(len(o.reports), 1)) {
		v.fail("even", "holds of the hot key by process are %v, the least is %d of %d", o.hotBy, least, sum)
	}
}
