package httpsoak_test

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const (
	lease = 3 * time.Second

	// afterLease is the delay that lockcore promises to a waiter behind a dead holder. slack is the
	// time that the operating system may add between a client, a server and Redis on a busy
	// machine.
	afterLease = 250 * time.Millisecond
	slack      = 750 * time.Millisecond

	// renewal is the longest time between two renewals of a lease: a third of the lease, plus a
	// tenth of that. unwritten bounds the time between a grant, or a renewal that is due, and the
	// moment at which it is seen.
	renewal   = lease * 11 / 30
	unwritten = 500 * time.Millisecond
)

// judge compares the answers to clients with the actions of servers.
func (h *history) judge() *verdict {
	v := new(verdict)
	runs := h.runs(v)
	unseen := len(h.deaths)/4 + 2 // a kill rarely falls between the grant in Redis and the call of the Observer
	for _, k := range h.keys {
		for _, w := range k.wrong {
			v.fail("client", "%s: %s", k.name, w)
		}
		rs := runs[k.name]
		v.runs += len(rs)
		h.judgeRuns(v, k, rs)
		v.judgeStatus(k)
		v.judgeAnswer(k, rs)
		h.judgeUnknown(v, k, rs)
		v.judgeWaits(k, rs)
	}
	if v.unseen > unseen {
		v.fail("attempt", "%d attempts are in no line of the journal, with %d deaths", v.unseen, len(h.deaths))
	}
	return v
}

// judgeRuns checks that the runs of a key follow one another. The next run begins only after the
// death of the run before and the end of its lease. It learns of the takeover, and counts as an
// attempt.
func (h *history) judgeRuns(v *verdict, k *keyTries, runs []*runLog) {
	for i, r := range runs {
		last, free := new(runLog), k.since
		if i > 0 {
			last = runs[i-1]
			free = last.granted
			if last.death != nil {
				free = last.leaseEnd()
			}
			v.judgeNext(k, last, r)
		}
		if skipped := r.attempt - last.attempt - 1; skipped != 0 { // by a process that died with the key before its Observer was notified
			if skipped < 0 || h.deathsBetween(free, r.granted-int64(lease-renewal-unwritten)) < skipped {
				v.fail("attempt", "%s: attempt %d follows attempt %d", k.name, r.attempt, last.attempt)
			}
			v.unseen += max(skipped, 0)
		}
		if told := r.attempt > 1 || i > 0; r.tookOver != told {
			v.fail("takeover", "%s: attempt %d, run %d in the journal, takes over: %v", k.name, r.attempt, i+1, r.tookOver)
		}
		if r.tookOver {
			v.takeovers++
		}
		v.judgeEnd(k, r)
	}
}

// judgeNext judges r after last.
func (v *verdict) judgeNext(k *keyTries, last, r *runLog) {
	switch {
	case k.mount.most && last.begun > 0 && r.begun > 0:
		v.fail("most", "%s: %s begins after %s had begun", k.name, r.id, last.id)
	case last.dead(r.granted) && r.granted < last.leaseEnd():
		v.fail("early", "%s: granted %v before the lease of %s could be over", k.name, time.Duration(last.leaseEnd()-r.granted), last.proc)
	case last.dead(r.granted):
	case last.stop() == 0 || last.stop() > r.granted:
		v.fail("overlap", "%s: %s is granted the key while %s runs, in %s, which lives", k.name, r.proc, last.id, last.proc)
	default:
		v.fail("again", "%s: %s is granted the key after %s had ended, in %s, which lives", k.name, r.proc, last.id, last.proc)
	}
	if r.guard != "" && last.guard != "" && r.guard != last.guard {
		v.fail("told", "%s is guarded as %s and as %s", k.name, last.guard, r.guard)
	}
}

// leaseEnd returns a time before the end of the lease that r had when it died.
func (r *runLog) leaseEnd() int64 {
	return max(r.granted, r.death.at-int64(renewal)) + int64(lease-unwritten)
}

func (v *verdict) judgeEnd(k *keyTries, r *runLog) {
	switch {
	case r.gaveUp > 0 || r.ended > 0:
	case r.death == nil:
		v.fail("end", "%s: %s neither ended nor was killed", k.name, r.id)
	case r.begun == 0:
		v.begun++
	default:
		v.midRun++
	}
}

func (h *history) deathsBetween(from, to int64) (n int) {
	for _, d := range h.deaths {
		if d.gone >= from && d.at <= to {
			n++
		}
	}
	return n
}

func (t try) unknown() bool { return t.problem == httpmw.TypeOutcomeUnknown }

// judgeStatus checks that only permitted answers were given, and that at most one of them is not a
// replay.
func (v *verdict) judgeStatus(k *keyTries) {
	fresh := 0
	for _, t := range k.tries {
		v.tries = append(v.tries, time.Duration(t.got-t.sent))
		switch {
		case t.status == http.StatusCreated:
			v.requests++
			if !t.replayed {
				fresh++
			}
		case t.status == http.StatusConflict && t.problem == httpmw.TypeInProgress:
			v.inProgress++
		case t.status == http.StatusConflict && t.unknown() && k.mount.most:
			v.requests++
		case t.status == http.StatusServiceUnavailable:
			v.unavailable++
		default:
			v.fail("status", "%s: %d %s", k.name, t.status, t.problem)
		}
	}
	if fresh > 1 {
		v.fail("fresh", "%s: %d answers are not marked as replays", k.name, fresh)
	}
}

// judgeAnswer checks that the answer is that of the last run, and that no run follows it.
func (v *verdict) judgeAnswer(k *keyTries, runs []*runLog) {
	if k.first == nil {
		return
	}
	id, known := k.first.header.Get("X-Receipt"), false
	for i, r := range runs {
		if r.id != id {
			continue
		}
		known = true
		if r.ended == 0 || r.sum != sum(http.StatusCreated, k.first.header, k.first.body) {
			v.fail("origin", "%s: the answer is not what %s made", k.name, id)
		}
		if i != len(runs)-1 {
			v.fail("after", "%s: recorded was %s, and %s ran after it", k.name, id, runs[i+1].id)
		}
	}
	if !known {
		v.fail("origin", "%s: the answer is of %q, which is not in the journal", k.name, id)
	}
	for _, t := range k.tries {
		for _, r := range runs {
			if t.status == http.StatusCreated && r.granted > t.got {
				v.fail("after", "%s: granted %v after a client had the answer", k.name, time.Duration(r.granted-t.got))
			}
		}
	}
}
