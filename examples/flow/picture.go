package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
)

const column = 100 * time.Millisecond // of the picture

// draw prints a line for each tenant: how many of its calls run. Below are the times of Retry-After
// and of the rebuilds.
func draw(s *stage.Stage, p *partner, st *state) {
	last := st.rebuilds[len(st.rebuilds)-1].to
	line := func(name string, cell func(at time.Duration) string) {
		var b strings.Builder
		for at := time.Duration(0); at < last; at += column {
			b.WriteString(cell(at))
		}
		fmt.Fprintf(s.Out, "  %-11s %s\n", name, &b)
	}
	fmt.Fprintln(s.Out)
	line("second", func(at time.Duration) string {
		if at%time.Second == 0 {
			return fmt.Sprint(int(at.Seconds()) % 10)
		}
		return " "
	})
	for _, t := range tenants {
		line(t.name, func(at time.Duration) string {
			n := 0
			for _, c := range p.calls {
				if c.tenant == t.name && !c.refused && c.from <= at && at < c.to {
					n++
				}
			}
			return strings.Replace(fmt.Sprint(n), "0", ".", 1)
		})
	}
	line("Retry-After", func(at time.Duration) string {
		return mark(slices.ContainsFunc(p.refused, func(from time.Duration) bool { return from <= at && at < from+retryAfter }), "x")
	})
	line("rebuild", func(at time.Duration) string {
		return mark(slices.ContainsFunc(st.rebuilds, func(r rebuild) bool { return r.from <= at && at < r.to }), "#")
	})
	fmt.Fprintln(s.Out)
}

func mark(yes bool, as string) string {
	if yes {
		return as
	}
	return "."
}

// judge prints what was counted, and returns an error that names what is not as expected.
func judge(s *stage.Stage, p *partner, st *state, tasks []*asynq.TaskInfo) error {
	var errs []error
	check := func(right bool, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		fmt.Fprintln(s.Out, text)
		if !right {
			errs = append(errs, errors.New("unexpected: "+text))
		}
	}
	check(p.most <= atOnce && p.mostInSecond <= perSecond,
		"the partner counted at most %d calls at a time and %d in a second", p.most, p.mostInSecond)
	check(p.tooEarly == 0 && len(p.refused) == len(trouble),
		"it answered 429 with Retry-After %d times, and %d calls began meanwhile", len(p.refused), p.tooEarly)

	calls, done, retried := 0, map[string]int{}, 0
	for _, t := range tenants {
		calls += t.calls
	}
	for _, t := range tasks {
		done[t.Type]++
		retried += t.Retried
	}
	check(done["call"] == calls && done["rebuild"] == calls && retried == 0,
		"%d of %d calls and %d rebuilds are completed, and %d retries are used up", done["call"], calls, done["rebuild"], retried)

	// Until the last call of paying, all tenants had calls to make. Its weight is three times
	// theirs, but decides only between parked tasks. The calls of flood come first, and the last
	// ones of paying are too few for its permits. So the check asks for half of that: 1.5 times the
	// calls of each other tenant.
	had, flood, paying, small := map[string]int{}, tenants[0], tenants[1], tenants[2]
	for _, c := range p.calls {
		if !c.refused && had[paying.name] < paying.calls {
			had[c.tenant]++
		}
	}
	check(had[paying.name] == paying.calls && 3*max(had[flood.name], had[small.name]) <= 2*paying.calls && had[small.name] > 0,
		"when paying had made its %d calls, flood had made %d of %d, and small %d of %d",
		had[paying.name], had[flood.name], flood.calls, had[small.name], small.calls)

	after := 0
	for _, r := range st.rebuilds {
		if r.from >= st.lastChange {
			after++
		}
	}
	check(st.most == 1 && len(st.rebuilds) < st.changes && after > 0 && st.rebuilds[len(st.rebuilds)-1].changes == st.changes,
		"%d changes were indexed in %d rebuilds, %d at a time, and in %d after the last change", st.changes, len(st.rebuilds), st.most, after)
	return errors.Join(errs...)
}
