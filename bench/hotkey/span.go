package main

import (
	"cmp"
	"slices"
	"time"
)

// span is one run of a handler.
type span struct {
	task, account string
	token         int64
	begin, end    int64 // end is forever while it runs
	how           op    // opEnded, opLost, or opBegan if its process was killed or it still runs
}

const forever = 1<<63 - 1

// spans returns the runs in rs by account, ordered by their begin. A run of a killed process ends
// at the time of the kill, because no later time is known at which it still ran.
func spans(rs []record, killed map[int]int64) map[string][]span {
	type running struct {
		process int
		task    string
	}
	by, at := map[string][]span{}, map[running]int{}
	for _, r := range rs {
		ss := by[r.Account]
		switch r.Op {
		case opBegan:
			end, ok := killed[r.process]
			if !ok {
				end = forever
			}
			at[running{r.process, r.Task}] = len(ss)
			by[r.Account] = append(ss, span{r.Task, r.Account, r.Token, r.At, end, opBegan})
		case opEnded, opLost:
			s := &ss[at[running{r.process, r.Task}]]
			s.end, s.how = r.At, r.Op
		default:
		}
	}
	return by
}

// overlaps returns the pairs of runs of which the second began before the first ended.
func overlaps(ss []span) (pairs [][2]span) {
	for i, b := range ss {
		for _, a := range ss[:i] {
			if a.end > b.begin {
				pairs = append(pairs, [2]span{a, b})
			}
		}
	}
	return pairs
}

// absence is a time in which no worker had a task that was delivered before: it was parked, or
// waited for a retry. It is also the time of a pause of a server.
type absence struct{ from, to int64 }

// absences returns the absences by account, ordered by their begin.
func absences(rs []record) map[string][]absence {
	by, at := map[string][]absence{}, map[string]int{}
	for _, r := range rs {
		switch r.Op {
		case opLeft:
			at[r.Task] = len(by[r.Account])
			by[r.Account] = append(by[r.Account], absence{r.At, forever})
		case opDelivered:
			if i, ok := at[r.Task]; ok {
				by[r.Account][i].to = r.At
				delete(at, r.Task)
			}
		default:
		}
	}
	return by
}

// gap is a time in which a key was free while one of its tasks was absent.
type gap struct {
	after    span // the run before
	from, to int64
}

func (g gap) length() time.Duration { return time.Duration(g.to - g.from) }

// gaps returns the gaps between the runs ss of an account.
func gaps(ss []span, away []absence) (found []gap) {
	for i := 1; i < len(ss); i++ {
		before, to := ss[i-1], ss[i].begin
		from := int64(forever)
		for _, a := range away {
			if a.to > before.end && a.from < to {
				from = min(from, max(a.from, before.end))
			}
		}
		if from < to {
			found = append(found, gap{before, from, to})
		}
	}
	return found
}

// quantile returns the q-quantile of vs, for q from 0 to 1. It sorts vs.
func quantile[T cmp.Ordered](vs []T, q float64) T {
	slices.Sort(vs)
	return vs[int(q*float64(len(vs)-1)+0.5)]
}
