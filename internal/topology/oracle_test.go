package topology_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
)

// oracle judges what handlers see. Of the servers it knows only when they were made to fail.
type oracle struct {
	t *testing.T

	mu       sync.Mutex
	keys     map[string]*register
	jobs     map[string]*job
	faults   []time.Time
	overlaps []overlap
	holds    int
	lost     int // leases that ended before their handler
	replays  int
	gap      time.Duration // longest time between two holds of a key
	errs     map[string]int
	longest  time.Duration // that a call took besides its handler
}

// register is the resource of a key. A read counts too, so a hold that reads and then writes is
// alone or refused.
type register struct {
	chaos.Register
	alive map[*hold]struct{}
	last  int64 // greatest token of a hold that has begun
	begun time.Time
	since int // holds since the last fault
}

// hold is one run of a handler.
type hold struct {
	ctx   context.Context //nolint:containedctx // the handler's
	token int64
	ended time.Time // it returned, or its ctx ended
}

// overlap is two holds of a key at once, both with a ctx that has not ended.
type overlap struct {
	key  string
	a, b *hold
	at   time.Time
}

// job is a once key.
type job struct {
	runs, tookOver int
	began          time.Time // the first
	values         []string
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	return &oracle{t: t, keys: map[string]*register{}, jobs: map[string]*job{}, errs: map[string]int{}}
}

// fault notes that the servers are made to fail now.
func (o *oracle) fault() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, time.Now())
	for _, r := range o.keys {
		r.since = 0
	}
}

func (o *oracle) registerLocked(key string) *register {
	r := o.keys[key]
	if r == nil {
		r = &register{alive: map[*hold]struct{}{}}
		o.keys[key] = r
	}
	return r
}

// enter is called first by a handler of an exclusive key.
func (o *oracle) enter(ctx context.Context, key string, token int64) (*hold, *chaos.Register) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, ten, r := time.Now(), &hold{ctx: ctx, token: token}, o.registerLocked(key)
	o.holds++
	r.since++
	if !r.begun.IsZero() && key != longKey {
		o.gap = max(o.gap, now.Sub(r.begun))
	}
	r.begun = now
	for other := range r.alive {
		switch {
		case other.token == token:
			o.t.Errorf("%s: two holds have token %d", key, token)
		case other.ctx.Err() == nil && ctx.Err() == nil:
			o.overlaps = append(o.overlaps, overlap{key, other, ten, now})
		}
	}
	if token <= r.last && len(o.faults) == 0 {
		o.t.Errorf("%s: token %d after %d", key, token, r.last)
	}
	r.last = max(r.last, token)
	r.alive[ten] = struct{}{}
	context.AfterFunc(ctx, func() { o.end(ten) })
	return ten, &r.Register
}

func (o *oracle) end(ten *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ten.ended.IsZero() {
		ten.ended = time.Now()
	}
}

// leave is called last by the handler.
func (o *oracle) leave(key string, ten *hold) {
	o.end(ten)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.keys[key].alive, ten)
}

// ran notes a run of a once key.
func (o *oracle) ran(name, value string, tookOver bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.jobs[name]
	if j == nil {
		j = &job{began: time.Now()}
		o.jobs[name] = j
	}
	j.runs++
	if tookOver {
		j.tookOver++
	}
	j.values = append(j.values, value)
}

// replayed checks what a once key has replayed.
func (o *oracle) replayed(name, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replays++
	if j := o.jobs[name]; j == nil || !slices.Contains(j.values, value) {
		o.t.Errorf("%s: replayed %q, which no run has returned", name, value)
	}
}

// rules are the rules that a run must keep.
type rules struct {
	overlaps   bool          // there may be some after a fault, each for at most a lease
	secondRuns bool          // a once key from before a fault may run again
	longest    time.Duration // a call takes besides its handler
	gap        time.Duration // between two holds of a key
	holds      int           // below which the run is inconclusive
}

// judge is called when no handler runs any more.
func (o *oracle) judge(must rules) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	writes, stale := 0, 0
	for key, r := range o.keys {
		accepted, refused, _ := r.Counts()
		writes, stale = writes+accepted, stale+refused
		if err := r.Check(); err != nil {
			o.t.Errorf("%s: %v: one was made on a stale read", key, err)
		}
		if len(o.faults) > 0 && r.since == 0 && key != longKey {
			o.t.Errorf("%s: not held after the last fault", key)
		}
		if len(r.alive) > 0 {
			o.t.Errorf("%s: %d handlers still run", key, len(r.alive))
		}
	}
	sum := o.judgeOverlapsLocked(must)
	again := o.judgeJobsLocked(must)
	if o.keys[longKey] == nil {
		o.t.Error("inconclusive: no key was held for long")
	}
	o.t.Logf("%d faults: %d holds, %d writes accepted, %d refused as stale, %d leases lost, %d overlaps%s; %d once keys, %d replays, %d second runs; longest gap of a key %v, longest call %v; refusals %v",
		len(o.faults), o.holds, writes, stale, o.lost, len(o.overlaps), sum, len(o.jobs), o.replays, again, o.gap.Round(time.Millisecond), o.longest.Round(time.Millisecond), o.errs)
	if stale > 0 && len(o.faults) == 0 {
		o.t.Errorf("%d writes refused without a fault", stale)
	}
	if o.lost > 0 && len(o.faults) == 0 {
		o.t.Errorf("%d leases lost without a fault", o.lost)
	}
	if o.longest > must.longest {
		o.t.Errorf("a call was stuck for %v", o.longest)
	}
	if o.gap > must.gap {
		o.t.Errorf("a key was not held for %v", o.gap)
	}
	if n := o.errs["unavailable"]; n > 0 && len(o.faults) == 0 {
		o.t.Errorf("%d calls were told that Redis is away, without a fault", n)
	}
	if o.holds < must.holds || len(o.jobs) < must.holds/100 || o.replays == 0 {
		o.t.Errorf("inconclusive: fewer than %d holds", must.holds)
	}
}

// judgeOverlapsLocked judges the overlaps and returns their summary.
func (o *oracle) judgeOverlapsLocked(must rules) string {
	o.t.Helper()
	var longest, latest time.Duration
	for _, v := range o.overlaps {
		d := slices.MinFunc([]time.Time{v.a.ended, v.b.ended}, time.Time.Compare).Sub(v.at)
		longest = max(longest, d)
		var after time.Duration
		for _, f := range o.faults {
			if v.at.After(f) {
				after = v.at.Sub(f)
			}
		}
		latest = max(latest, after)
		if !must.overlaps || after == 0 || d > lease {
			o.t.Errorf("%s: tokens %d and %d at once for %v, %v after a fault", v.key, v.a.token, v.b.token, d, after)
		}
	}
	if len(o.overlaps) == 0 {
		return ""
	}
	return fmt.Sprintf(" of up to %v, the last %v after a fault", longest.Round(time.Millisecond), latest.Round(time.Millisecond))
}

// judgeJobsLocked counts the runs that no takeover explains.
func (o *oracle) judgeJobsLocked(must rules) (again int) {
	o.t.Helper()
	for name, j := range o.jobs {
		more := j.runs - 1 - j.tookOver
		if more <= 0 {
			continue
		}
		again += more
		last := time.Time{}
		if n := len(o.faults); n > 0 {
			last = o.faults[n-1]
		}
		if !must.secondRuns || j.began.After(last) {
			o.t.Errorf("%s: %d runs, %d of them takeovers", name, j.runs, j.tookOver)
		}
	}
	return again
}
