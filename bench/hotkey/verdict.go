package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// verdict has the figures of a soak.
type verdict struct {
	runs, again, cut, lost int           // runs that ended; those of tasks that had ended before; runs of killed processes; runs whose ctx ended
	left                   int           // deliveries without a run
	overlaps               int           // runs that began before another run of their account had ended
	late                   int           // the same, but the other run ended because its ctx did: it lost its lease
	longest                time.Duration // of the late ones
	stale                  int           // runs with a fencing token that is not greater than that of the run before

	afterRun, afterKill, inPause []time.Duration // gaps: after an ended run, after a killed one, and during a pause
}

// judgeSoak computes the verdict from the records, the kills of processes and the pauses of
// servers.
func judgeSoak(rs []record, killed map[int]int64, pauses []absence) (v verdict) {
	ended := map[string]bool{}
	for _, r := range rs {
		switch r.Op {
		case opEnded:
			v.runs++
			if ended[r.Task] {
				v.again++
			}
			ended[r.Task] = true
		case opLost:
			v.lost++
		case opLeft:
			v.left++
		default:
		}
	}
	away := absences(rs)
	for account, ss := range spans(rs, killed) {
		for i, s := range ss {
			if s.how == opBegan {
				v.cut++
			}
			if i > 0 && s.token <= ss[i-1].token {
				v.stale++
			}
		}
		for _, pair := range overlaps(ss) {
			if pair[0].how == opLost {
				v.late++
				v.longest = max(v.longest, time.Duration(pair[0].end-pair[1].begin))
			} else {
				v.overlaps++
			}
		}
		for _, g := range gaps(ss, away[account]) {
			switch {
			case touches(g, pauses):
				v.inPause = append(v.inPause, g.length())
			case g.after.how == opBegan:
				v.afterKill = append(v.afterKill, g.length())
			default:
				v.afterRun = append(v.afterRun, g.length())
			}
		}
	}
	return v
}

func touches(g gap, pauses []absence) bool {
	for _, p := range pauses {
		if p.from < g.to && p.to > g.from {
			return true
		}
	}
	return false
}

func (v verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %d runs ended, %d of them of a task that had ended; %d were ended by a kill, %d by their ctx; %d deliveries ended without a run\n",
		v.runs, v.again, v.cut, v.lost, v.left)
	fmt.Fprintf(&b, "- %d overlaps; %d of runs that lost their lease, at most %v; %d fencing tokens that did not grow\n", v.overlaps, v.late, v.longest.Round(time.Microsecond), v.stale)
	fmt.Fprintf(&b, "- a key was free while tasks of it were parked: after a run %s; after a kill, with the rest of the lease, %s; around a pause %s\n",
		waits(v.afterRun), waits(v.afterKill), waits(v.inPause))
	fmt.Fprintf(&b, "- bound: a parked task comes back after %v, and a lease of %v; with asynq's recovery of killed workers %v\n", comesBack, soakLease, comesBack+soakLease+recovery)
	return b.String()
}

func waits(ds []time.Duration) string {
	if len(ds) == 0 {
		return "never"
	}
	over := 0
	for _, d := range ds {
		if d > comesBack+soakLease {
			over++
		}
	}
	return fmt.Sprintf("%d times, median %v, p99 %v, longest %v, %d above the bound", len(ds), quantile(ds, 0.5).Round(time.Millisecond),
		quantile(ds, 0.99).Round(time.Millisecond), quantile(ds, 1).Round(time.Millisecond), over)
}

// check returns an error for what must not happen even with faults, and if the soak is
// inconclusive.
func (v verdict) check() (err error) {
	if v.overlaps > 0 || v.stale > 0 {
		err = fmt.Errorf("hotkey: %d overlaps, %d fencing tokens that did not grow", v.overlaps, v.stale)
	}
	for _, ds := range [][]time.Duration{v.afterRun, v.afterKill, v.inPause} {
		for _, d := range ds {
			if d > comesBack+soakLease+recovery {
				err = errors.Join(err, fmt.Errorf("hotkey: a key was free for %v while tasks of it were parked", d))
			}
		}
	}
	if v.cut == 0 || v.left == 0 {
		err = errors.Join(err, errors.New("hotkey: inconclusive: no run was killed, or no task left its worker"))
	}
	return err
}
