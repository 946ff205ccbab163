package httpsoak_test

import (
	"net/http"
	"slices"
	"time"
)

// judgeUnknown checks that the outcome of an at-most-once key is unknown if and only if its run was
// killed. All clients get that answer, and none gets it before the end of the lease. Any other key
// is done in the end.
func (h *history) judgeUnknown(v *verdict, k *keyTries, runs []*runLog) {
	i := slices.IndexFunc(k.tries, try.unknown)
	if i < 0 {
		if k.first == nil && len(k.tries) > 0 {
			v.fail("done", "%s: no client got its answer", k.name)
		}
		if n := len(runs); k.mount.most && n > 1 {
			v.fail("most", "%s: granted %d times", k.name, n)
		}
		return
	}
	v.unknown++
	if slices.ContainsFunc(k.tries, func(t try) bool { return t.status == http.StatusCreated }) {
		v.fail("unknown", "%s: its outcome is unknown to some, and some have it", k.name)
	}
	for _, t := range k.tries {
		switch {
		case !t.unknown():
		case len(runs) == 0:
			if h.deathsBetween(k.since, t.got-int64(lease-renewal-unwritten)) == 0 {
				v.fail("unknown", "%s: no server was killed", k.name)
			}
		case !runs[len(runs)-1].dead(t.got):
			v.fail("unknown", "%s: %s was not killed before", k.name, runs[len(runs)-1].id)
		case t.got < runs[len(runs)-1].leaseEnd():
			v.fail("early", "%s: its outcome is unknown before its lease was over", k.name)
		}
	}
	if len(runs) == 0 {
		v.unseen++
	}
}

// judgeWaits checks the requests at living servers. While no living process runs the key, a request
// waits for at most one lease and the short time that lockcore promises. Each attempt that is in no
// line of the journal costs one lease more. The delays of the machine that servers wrote down are
// added.
func (v *verdict) judgeWaits(k *keyTries, runs []*runLog) {
	for i, r := range runs {
		if r.ended > 0 && (i < len(runs)-1 || k.first == nil) {
			v.ended++
		}
	}
	for _, t := range k.tries {
		from, attempt, dead := t.sent, 0, false
		for _, r := range runs {
			if r.granted >= t.got {
				break
			}
			if r.granted > from {
				v.judgeWait(k, r.granted-from, r.attempt-attempt, dead)
			}
			if r.stop() == 0 { // another check reports that
				return
			}
			from, attempt, dead = max(from, r.stop()), r.attempt, r.dead(t.got)
		}
		v.judgeWait(k, t.got-from, 1, dead)
	}
}

func (v *verdict) judgeWait(k *keyTries, ns int64, leases int, dead bool) {
	wait := time.Duration(ns)
	if dead {
		v.deadWait = max(v.deadWait, wait)
	}
	if limit := time.Duration(max(leases, 1))*(lease+afterLease) + slack + v.late; wait > limit {
		v.fail("wait", "%s: a request waited %v for a dead server, at most %v", k.name, wait, limit)
	}
}
