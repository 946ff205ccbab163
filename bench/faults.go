package main

import (
	"cmp"
	"context"
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
	trials []*trial
	ctx    context.Context //nolint:containedctx // from open to the end of the process
	ended  sync.WaitGroup
}

// quiet is the logger of go-redis in a process whose network fails on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func newFaultTask(j job) (*faultTask, error) {
	redis.SetLogger(quiet{})
	t := &faultTask{job: j, ctx: context.Background()}
	p := j.Point
	for i := range p.Workers {
		n := &link{}
		a, err := openContender(j.Library, n, j.Addr, p.Lease)
		if err != nil {
			return nil, err
		}
		b, err := openContender(j.Library, &link{}, j.Addr, p.Lease)
		if err != nil {
			return nil, err
		}
		t.trials = append(t.trials, &trial{point: p, key: fmt.Sprintf("%s%d.", j.Prefix, i), net: n, a: a, b: b, after: momentOf(i, p.Workers, p.Lease)})
	}
	return t, nil
}

// warmUp makes one of the clients run all commands once, so that Redis knows the scripts.
func (t *faultTask) warmUp() error {
	_, release, err := lockFor(t.ctx, callerTime, t.trials[0].a, t.job.Prefix+"rehearsal")
	if err != nil {
		return fmt.Errorf("bench: %s cannot lock a free key: %w", t.job.Library, err)
	}
	time.Sleep(t.job.Point.Lease * 6 / 10) // longer than any library waits before its first renewal
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
func (t *faultTask) open() error {
	part := t.job.Point.Lease / time.Duration(len(t.trials))
	for i, tr := range t.trials {
		begin := part*time.Duration(i) + rand.N(part)
		t.ended.Go(func() {
			wait(t.ctx, begin)
			tr.run(t.ctx)
		})
	}
	return nil
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
	f := figures{inconclusive: 0, untold: 0, neverB: 0}
	o.Extra = f
	var good []finding
	var why []string
	for _, one := range fs {
		if one.inconclusive != "" {
			f[inconclusive]++
			why = append(why, one.inconclusive)
			continue
		}
		good = append(good, one)
		if one.together > 0 {
			o.Violations++
		}
		if one.untold {
			f[untold]++
		}
		if one.bNever {
			f[neverB]++
		}
	}
	if len(good) == 0 {
		o.Said = strings.Join(why, ", ")
		return
	}
	together := seconds(good, func(f finding) (time.Duration, bool) { return f.together, true })
	f[togetherMedian], f[togetherWorst] = summary(together).Center, slices.Max(together)
	f[stuckWorst] = slices.Max(seconds(good, func(f finding) (time.Duration, bool) { return f.stuck, true }))
	if told := seconds(good, func(f finding) (time.Duration, bool) { return f.told, f.hasTold }); len(told) > 0 {
		f[toldMedian] = summary(told).Center
	}
	if after := seconds(good, func(f finding) (time.Duration, bool) { return f.bAfter, !f.bNever }); len(after) > 0 {
		f[grantedWorst] = slices.Max(after)
	}
	o.Said = strings.Join(append(saidOf(good), why...), "; ")
}

func seconds(fs []finding, get func(finding) (time.Duration, bool)) (vs []float64) {
	for _, f := range fs {
		if d, ok := get(f); ok {
			vs = append(vs, d.Seconds())
		}
	}
	return vs
}

// saidOf returns the different results for A's callers, each with its median time in seconds. The
// most frequent result is the first. If there are several, each has its number.
func saidOf(fs []finding) (parts []string) {
	groups := map[string][]finding{}
	for _, f := range fs {
		if f.said != "" {
			groups[f.said] = append(groups[f.said], f)
		}
	}
	all := make([][]finding, 0, len(groups))
	for _, g := range groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b []finding) int { return cmp.Or(len(b)-len(a), strings.Compare(a[0].said, b[0].said)) })
	for _, g := range all {
		text := g[0].said
		if text != kept && text != nothing {
			text += " " + brief(summary(seconds(g, func(f finding) (time.Duration, bool) { return f.saidAfter, true })).Center)
		}
		if len(all) > 1 {
			text = fmt.Sprintf("%d × %s", len(g), text)
		}
		parts = append(parts, text)
	}
	return parts
}
