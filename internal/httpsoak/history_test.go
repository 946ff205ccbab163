package httpsoak_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// history has all that is known from outside the lock: the lines of the servers, the servers that
// were killed, and the answers to clients.
type history struct {
	lines  []line
	deaths map[string]*death
	keys   []*keyTries
}

// runLog is one run of a key according to the journal. An unknown time is 0.
type runLog struct {
	proc, id, guard, sum string
	attempt              int
	tookOver             bool
	granted              int64
	begun, ended, gaveUp int64
	death                *death // of its process, if that came after the grant
}

// stop returns the time at which nothing of the run was left, or 0.
func (r *runLog) stop() int64 {
	if at := cmp.Or(r.ended, r.gaveUp); at != 0 || r.death == nil {
		return at
	}
	return r.death.gone
}

// dead reports whether the process of r was killed before at, between the grant and the record.
func (r *runLog) dead(at int64) bool { return r.death != nil && r.death.at <= at }

// counts has the numbers of a soak.
type counts struct {
	requests, runs, takeovers, unknown int // unknown: keys
	begun, midRun, ended, unseen       int // killed before the handler began, in it, between its end and its record, before the Observer heard
	inProgress, unavailable            int // tries
	steps                              map[string]int
	tries                              []time.Duration // from the send to the answer
	deadWait                           time.Duration   // longest
	late                               time.Duration   // most: by how much the machine was busy with something else
}

// verdict is the result of the oracle. The first word of each sentence of wrong names the check.
type verdict struct {
	counts
	wrong []string
}

func (v *verdict) fail(check, format string, args ...any) {
	v.wrong = append(v.wrong, check+": "+fmt.Sprintf(format, args...))
}

// runs returns the runs in the lines, by key and in the order of their grants.
func (h *history) runs(v *verdict) map[string][]*runLog {
	h.died(v)
	all := map[string][]*runLog{}
	for _, l := range h.lines {
		switch l.Op {
		case opGranted:
			r := &runLog{proc: l.Proc, attempt: l.Attempt, tookOver: l.TookOver, granted: l.At, death: h.deaths[l.Proc]}
			all[l.Key] = append(all[l.Key], r)
		case opBegin:
			i := slices.IndexFunc(all[l.Key], func(r *runLog) bool { return r.proc == l.Proc && r.begun == 0 })
			if i < 0 {
				v.fail("begin", "%s: %s begins without a grant", l.Key, l.Run)
				continue
			}
			r := all[l.Key][i]
			r.id, r.guard, r.begun = l.Run, l.Guard, l.At
			if l.Guard == "" || l.Attempt != r.attempt || l.TookOver != r.tookOver {
				v.fail("told", "%s: the handler heard key %q, attempt %d, took over %v; the Observer attempt %d, took over %v",
					l.Key, l.Guard, l.Attempt, l.TookOver, r.attempt, r.tookOver)
			}
		case opEnd, opGaveUp:
			h.end(v, all[l.Key], l)
		case opLate:
			v.late = max(v.late, l.Late)
		case opFault:
			h.fault(v, l)
		}
	}
	for _, runs := range all {
		slices.SortStableFunc(runs, func(a, b *runLog) int { return cmp.Compare(a.granted, b.granted) })
	}
	return all
}

func (h *history) end(v *verdict, runs []*runLog, l line) {
	i := slices.IndexFunc(runs, func(r *runLog) bool { return r.id == l.Run })
	if i < 0 {
		v.fail("begin", "%s: %s ends and has not begun", l.Key, l.Run)
		return
	}
	if l.Op == opGaveUp {
		runs[i].gaveUp = l.At
		h.fault(v, l)
		return
	}
	runs[i].ended, runs[i].sum = l.At, l.Sum
}

// died reads from the journal when and where processes killed themselves.
func (h *history) died(v *verdict) {
	for _, l := range h.lines {
		if d := h.deaths[l.Proc]; l.Op == opDie && d == nil {
			v.fail("death", "%s died of itself", l.Proc)
		} else if l.Op == opDie {
			d.at, d.step = l.At, l.Text
		}
	}
	v.steps = map[string]int{}
	for _, d := range h.deaths {
		v.steps[cmp.Or(d.step, "anywhere")]++
	}
}

// fault judges a fault in the journal. Only the death of its process excuses it. Without such a
// death, a lease is lost if the machine is so busy that a process cannot renew within a lease. Then
// other checks may fail too, because of the machine.
func (h *history) fault(v *verdict, l line) {
	if d := h.deaths[l.Proc]; d == nil || l.At < d.at {
		v.fail("fault", "%s: %s: %s %s", l.Proc, l.Key, l.Op, l.Text)
	}
}
