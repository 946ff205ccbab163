package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// result has the figures of a run.
type result struct {
	load
	took time.Duration // until the load was done or the limit was reached

	hotDone, othersDone   int
	backlogDone           int             // runs of its tasks until then
	hotLast, othersLast   time.Duration   // when the last of these tasks ended
	accounts              []time.Duration // when each finished hot account was done, in this order
	delivered             float64         // deliveries per hot task
	sent, executed, queue float64         // commands of all tasks per hot task: written for locks, executed for locks, executed for asynq

	faults
}

// faults counts events that must not happen, except repeats: asynq delivers at least once.
type faults struct {
	overlaps, repeats           int // runs during another run of their account, and of tasks that had ended
	retries, archived, unstored int // in asynq: retries used up, tasks archived, ended tasks not stored as completed
}

func (f *faults) add(g faults) {
	f.overlaps += g.overlaps
	f.repeats += g.repeats
	f.retries += g.retries
	f.archived += g.archived
	f.unstored += g.unstored
}

func (f faults) String() string {
	if f == (faults{}) {
		return "0"
	}
	return fmt.Sprintf("%d overlaps, %d retries used up, %d archived, %d not completed, %d ran again",
		f.overlaps, f.retries, f.archived, f.unstored, f.repeats)
}

// judge computes the figures of a run that began at start from its records.
func (res *result) judge(rs []record, start time.Time) {
	ended, left := map[string]bool{}, map[string]int{}
	for i := range res.hotTasks {
		left[fmt.Sprint("hot", i%res.hot)]++
	}
	for _, r := range rs {
		at, hot := time.Duration(r.At-start.UnixNano()), strings.HasPrefix(r.Account, "hot")
		switch {
		case r.Op == opSent:
			res.sent += float64(r.Sent) / float64(res.hotTasks)
		case r.Op == opDelivered && hot:
			res.delivered += 1 / float64(res.hotTasks)
		case r.Op != opEnded:
		case ended[r.Task]:
			res.repeats++
		case hot:
			res.hotDone++
			res.hotLast = at
			if left[r.Account]--; left[r.Account] == 0 {
				res.accounts = append(res.accounts, at)
			}
		case strings.HasPrefix(r.Account, "other"):
			res.othersDone++
			res.othersLast = at
		default:
			res.backlogDone++
		}
		ended[r.Task] = ended[r.Task] || r.Op == opEnded
	}
	if res.policy != policyNone {
		for _, ss := range spans(rs, nil) {
			res.overlaps += len(overlaps(ss))
		}
	}
}

func (l load) String() string {
	return fmt.Sprintf("%s, %d processes, TaskCheckInterval %v, %d hot accounts, hold %v", l.policy, l.procs, l.check, l.hot, l.hold)
}

// rounds are the results of one load.
type rounds []result

func (rs rounds) values(get func(*result) float64) (vs []float64) {
	for i := range rs {
		vs = append(vs, get(&rs[i]))
	}
	return vs
}

// spread returns the median of vs, with their range if there are several.
func spread(format string, vs []float64) string {
	vs = slices.Clone(vs)
	median := fmt.Sprintf(format, quantile(vs, 0.5))
	least, most := fmt.Sprintf(format, vs[0]), fmt.Sprintf(format, vs[len(vs)-1])
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
}

// times returns when all tasks were done or, if a round did not finish them, how many the worst
// round finished.
func (rs rounds) times(last func(*result) time.Duration, done func(*result) (n, of int)) string {
	worst := &rs[0]
	for i := range rs {
		if n, _ := done(&rs[i]); n < first(done(worst)) {
			worst = &rs[i]
		}
	}
	if n, of := done(worst); n < of {
		return fmt.Sprintf("%d of %d in %.0f s", n, of, worst.took.Seconds())
	}
	return spread("%.1f", rs.values(func(r *result) float64 { return last(r).Seconds() })) + " s"
}

func first(n, _ int) int { return n }

func (rs rounds) hotTime() string {
	return rs.times(func(r *result) time.Duration { return r.hotLast }, func(r *result) (int, int) { return r.hotDone, r.hotTasks })
}

func (rs rounds) othersTime() string {
	return rs.times(func(r *result) time.Duration { return r.othersLast }, func(r *result) (int, int) { return r.othersDone, r.others })
}

// medianAccount returns when the median hot account was done.
func (rs rounds) medianAccount() string {
	middle := (rs[0].hot - 1) / 2
	return rs.times(func(r *result) time.Duration { return r.accounts[middle] }, func(r *result) (int, int) {
		return min(len(r.accounts), middle+1), middle + 1
	})
}

// wrong returns the sum of the faults of all rounds.
func (rs rounds) wrong() (f faults) {
	for i := range rs {
		f.add(rs[i].faults)
	}
	return f
}

// check returns an error if there are faults other than repeats.
func (rs rounds) check() error {
	f := rs.wrong()
	if f.overlaps+f.retries+f.archived+f.unstored == 0 {
		return nil
	}
	return fmt.Errorf("hotkey: %s: %s", rs[0].load, f)
}
