package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// faultTask runs all trials of one point for one contender at once, because trials mostly wait.
type faultTask struct {
	job    job
	who    contender
	trials []*trial
	ctx    context.Context //nolint:containedctx // from open to the end of the process
	ended  sync.WaitGroup
}

func newFaultTask(j job) (*faultTask, error) {
	who, ok := contenderNamed(j.Library)
	if !ok {
		return nil, fmt.Errorf("bench: no contender %q", j.Library)
	}
	redis.SetLogger(quiet{})
	return &faultTask{job: j, who: who, ctx: context.Background()}, nil
}

// quiet is the logger of go-redis in a process whose network fails on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// warmUp makes the clients. One of them runs all commands once, so that Redis knows the scripts.
func (t *faultTask) warmUp() error {
	p := t.job.Point
	for i := range p.Workers {
		n := &link{}
		a, err := t.who.open(n, t.job.Addr, p.Lease)
		if err != nil {
			return err
		}
		b, err := t.who.open(&link{}, t.job.Addr, p.Lease)
		if err != nil {
			return err
		}
		tr := &trial{point: p, key: fmt.Sprintf("%s%d.", t.job.Prefix, i), net: n, a: a, b: b}
		tr.after = momentOf(i, p.Workers, p.Lease)
		t.trials = append(t.trials, tr)
	}
	_, release, err := lockFor(t.ctx, callerTime, t.trials[0].a, t.job.Prefix+"rehearsal")
	if err != nil {
		return fmt.Errorf("bench: %s cannot lock a free key: %w", t.who.name, err)
	}
	time.Sleep(p.Lease * 6 / 10) // longer than any library waits before its first renewal
	return release()
}

// momentOf returns how long after A's grant the i-th of n silences begins. The first nine tenths of
// the lease are divided into n equal parts. Each silence begins at a random time in a separate
// part, so the silences cover the time between two renewals. No silence begins in the last tenth,
// because a holder that never renews must still have the key when its silence begins.
func momentOf(i, n int, lease time.Duration) time.Duration {
	part := lease * 9 / 10 / time.Duration(n)
	return time.Duration(i)*part + rand.N(part)
}

// open starts the trials one after another, within one lease. If all clients started at once, the
// load could exceed the timeouts of some libraries, which are only milliseconds.
func (t *faultTask) open() {
	part := t.job.Point.Lease / time.Duration(len(t.trials))
	for i, tr := range t.trials {
		begin := part*time.Duration(i) + rand.N(part)
		t.ended.Go(func() {
			wait(t.ctx, begin)
			tr.run(t.ctx)
		})
	}
}

func (t *faultTask) close() {}

func (t *faultTask) collect(o *outcome) {
	now := time.Now()
	var fs []finding
	for _, tr := range t.trials {
		fs = append(fs, tr.find(now))
	}
	sumUp(fs, o)
}

// sumUp combines the findings of all trials of a point.
func sumUp(fs []finding, o *outcome) {
	o.Extra = figures{}
	var good []finding
	why := map[string]int{}
	for _, f := range fs {
		if f.inconclusive != "" {
			why[f.inconclusive]++
			continue
		}
		good = append(good, f)
		if f.together > 0 {
			o.Violations++
		}
		if f.untold {
			o.Extra[untold]++
		}
		if f.bNever {
			o.Extra[neverB]++
		}
	}
	o.Extra[conclusive], o.Extra[inconclusive] = float64(len(good)), float64(len(fs)-len(good))
	spread(o.Extra, togetherS, good, func(f finding) (time.Duration, bool) { return f.together, true })
	spread(o.Extra, toldS, good, func(f finding) (time.Duration, bool) { return f.told, f.hasTold })
	spread(o.Extra, grantedS, good, func(f finding) (time.Duration, bool) { return f.bAfter, !f.bNever })
	spread(o.Extra, stuckS, good, func(f finding) (time.Duration, bool) { return f.stuck, true })
	o.Said = saidOf(good)
	for reason, n := range why {
		o.Said = strings.TrimPrefix(o.Said+fmt.Sprintf("; inconclusive: %d × %s", n, reason), "; ")
	}
}

// spread adds the median, the least and the greatest value of the findings, in seconds.
func spread(to figures, name string, fs []finding, get func(finding) (time.Duration, bool)) {
	var vs []float64
	for _, f := range fs {
		if d, ok := get(f); ok {
			vs = append(vs, d.Seconds())
		}
	}
	if len(vs) == 0 {
		return
	}
	slices.Sort(vs)
	to[name+medianOf], to[name+leastOf], to[name+worstOf] = (vs[(len(vs)-1)/2]+vs[len(vs)/2])/2, vs[0], vs[len(vs)-1]
}

// saidOf returns the different results for A's callers, each with its median time. The most
// frequent result is the first.
func saidOf(fs []finding) string {
	groups := map[string][]finding{}
	for _, f := range fs {
		if f.said != "" {
			groups[f.said] = append(groups[f.said], f)
		}
	}
	var parts []string
	for _, g := range byCount(groups) {
		times := figures{}
		spread(times, "", g, func(f finding) (time.Duration, bool) { return f.saidAfter, true })
		text := g[0].phrase(times[medianOf])
		if len(groups) > 1 {
			text = fmt.Sprintf("%d × %s", len(g), text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func byCount(groups map[string][]finding) [][]finding {
	var all [][]finding
	for _, g := range groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b []finding) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a[0].said, b[0].said))
	})
	return all
}

var (
	errInconclusive = errors.New("bench: inconclusive")
	errNeverGranted = errors.New("bench: never granted")
)

// doubt returns an error for a cell with an inconclusive trial. It also returns an error if B was
// never granted the key, unless the cell is that of a peer.
func (r result) doubt() error {
	where := strings.TrimSpace(r.Scenario+" "+r.Point) + ", " + r.Library
	all := r.Figures[inconclusive] + r.Figures[conclusive]
	if n := r.Figures[inconclusive]; n > 0 {
		return fmt.Errorf("%w: %s: %v rounds of %v: %s", errInconclusive, where, n, all, r.Said)
	}
	if l, _ := libraryNamed(r.Library); !l.peer && r.Figures[neverB] > 0 {
		return fmt.Errorf("%w: %s: in %v rounds of %v", errNeverGranted, where, r.Figures[neverB], all)
	}
	return nil
}
