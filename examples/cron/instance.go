package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// instance is a process with a clock.
type instance struct {
	*scene
	*stage.Node
	name string
	skew time.Duration
}

// scene is what the instances of a chapter share.
type scene struct {
	*stage.Stage
	began time.Time

	mu    sync.Mutex     // guards the counts
	runs  map[string]int // by tick
	taken int
}

// row is the result of a chapter.
type row struct {
	ticks, runs, most, takeovers int // most: runs of one tick
}

func (r row) String() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d", r.ticks, r.runs, r.most, r.takeovers)
}

// act runs play on three instances for a while, and counts.
func act(s *stage.Stage, d time.Duration, play func(context.Context, *instance) error) func(context.Context) (row, error) {
	return func(ctx context.Context) (row, error) {
		sc := &scene{Stage: s, began: time.Now(), runs: map[string]int{}}
		cast := []*instance{{name: "A"}, {name: "B", skew: 600 * time.Millisecond}, {name: "C", skew: -600 * time.Millisecond}}
		for _, in := range cast {
			// The lease is short, because it must expire before another instance can run the tick of
			// a dead one.
			node, err := s.Node(lockcore.Options{Terms: lockcore.Terms{Lease: 2 * time.Second}})
			if err != nil {
				return row{}, err
			}
			in.scene, in.Node = sc, node
		}
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		errs := make([]error, len(cast))
		var all sync.WaitGroup
		for i, in := range cast {
			all.Go(func() { errs[i] = play(ctx, in) })
		}
		all.Wait()
		return sc.row(), errors.Join(errs...)
	}
}

func (s *scene) row() row {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := row{ticks: len(s.runs), takeovers: s.taken}
	for _, n := range s.runs {
		r.runs += n
		r.most = max(r.most, n)
	}
	return r
}

// now is the instance's clock.
func (in *instance) now() time.Time { return time.Now().Add(in.skew) }

// report is the job. It takes no time.
func (in *instance) report(t cronmw.Tick) {
	in.mu.Lock()
	in.runs[t.String()]++
	nth := in.runs[t.String()]
	in.mu.Unlock()
	if nth == 1 {
		in.Say("  %s runs %s", in.name, clock(t))
	} else {
		in.Say("  %s runs %s, run number %d", in.name, clock(t), nth)
	}
}

func clock(t cronmw.Tick) string { return t.Name + " of " + t.Time.UTC().Format(time.TimeOnly) }

// heard prints the result of a tick.
func (in *instance) heard(r cronmw.Result) {
	switch {
	case r.Outcome == cronmw.TookOver:
		in.mu.Lock()
		in.taken++
		in.mu.Unlock()
		in.Say("  %s took over and is done", in.name)
	case r.Outcome == cronmw.Elsewhere:
		in.Say("  %s leaves the tick to the others", in.name)
	case r.Outcome == cronmw.NotRun && errors.Is(r.Err, context.DeadlineExceeded): // the end of the chapter
		in.Say("  %s is stopped before the time of %s, and leaves the tick to the others", in.name, clock(r.Tick))
	case r.Err != nil:
		in.Say("  %s: %v: %v", in.name, r.Outcome, r.Err)
	}
}
