package chaos_test

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// slack is the time that the operating system may add between a client, a worker and Redis on a
	// busy machine.
	slack = 750 * time.Millisecond
	// unwritten bounds the time between a grant, or a renewal that is due, and the moment at which it
	// is seen.
	unwritten = 500 * time.Millisecond
)

// renewal is the longest time between two renewals of a lease: a third of it, and a tenth of that.
func renewal(lease time.Duration) time.Duration { return lease * 11 / 30 }

// answer is what a call of a once key, or an HTTP request for it, got.
type answer struct {
	kind      string
	sent, got int64
	run, sum  string
	replayed  bool
}

// onceRun is one run of a once key according to the journal. An unknown time is 0.
type onceRun struct {
	proc, id, held, sum  string
	attempt              int
	tookOver             bool
	granted              int64
	begun, ended, gaveUp int64
	death                *death // of its process, if that came after the grant
}

// stop returns the time at which nothing of the run was left, or 0.
func (r *onceRun) stop() int64 {
	if at := cmp.Or(r.ended, r.gaveUp); at != 0 || r.death == nil {
		return at
	}
	return r.death.gone
}

// dead reports whether the process of r was killed before at, between the grant and the record.
func (r *onceRun) dead(at int64) bool { return r.death != nil && r.death.at <= at }

// leaseEnd returns a time before the end of the lease that r had when it died.
func (r *onceRun) leaseEnd(lease time.Duration) int64 {
	return max(r.granted, r.death.at-int64(renewal(lease))) + int64(lease-unwritten)
}

// onceCounts are the numbers of the once keys.
type onceCounts struct {
	onceKeys, answers, replays, runs, takeovers, unknown int // unknown: keys
	secondRuns                                           int // that no takeover explains
	midRun, unseen                                       int // killed in the handler, killed before the Observer was notified
	deadWait                                             time.Duration
}

// onceJudge judges the once keys.
type onceJudge struct {
	*oracle
	*verdict
	rules
}

// judgeOnce compares the answers to calls with the runs.
func (o *oracle) judgeOnce(v *verdict, must rules) {
	j := onceJudge{o, v, must}
	runs := j.collect()
	keys := map[string]bool{}
	for key := range runs {
		keys[key] = true
	}
	for key := range o.answers {
		keys[key] = true
	}
	v.onceKeys = len(keys)
	for key := range keys {
		k := onceKeyOf{key, kindOf(key), o.answers[key], runs[key]}
		v.runs += len(k.runs)
		j.judgeAnswers(k)
		if j.serverFailed() {
			j.judgeSecondRuns(k)
			continue
		}
		j.judgeRuns(k)
		j.judgeUnknown(k)
		j.judgeWaits(k)
	}
	if v.unseen > len(o.deaths)/4+2 { // a kill rarely falls between the grant in Redis and the call of the Observer
		v.fail("attempt", "%d attempts are in no line of the journal, with %d deaths", v.unseen, len(o.deaths))
	}
}

// serverFailed reports whether a server failed, so that a record may be lost and a run may be
// repeated by a process that lives.
func (j onceJudge) serverFailed() bool { return len(j.failed) > 0 }

// onceKeyOf is all that is known of a once key.
type onceKeyOf struct {
	name    string
	kind    onceKind
	answers []answer
	runs    []*onceRun
}

// collect returns the runs in the journal, by key and in the order of their grants.
func (j onceJudge) collect() map[string][]*onceRun {
	all := map[string][]*onceRun{}
	for _, l := range j.oracle.runs {
		switch l.Op {
		case opGranted:
			r := &onceRun{proc: l.Proc, attempt: l.Attempt, tookOver: l.TookOver, granted: l.At, death: j.deaths[l.Proc]}
			all[l.Key] = append(all[l.Key], r)
		case opBegun:
			i := slices.IndexFunc(all[l.Key], func(r *onceRun) bool { return r.proc == l.Proc && r.begun == 0 })
			if i < 0 {
				j.fail("begin", "%s: %s begins without a grant", l.Key, l.Run)
				continue
			}
			r := all[l.Key][i]
			r.id, r.held, r.begun = l.Run, l.Text, l.At
			if l.Text == "" || l.Attempt != r.attempt || l.TookOver != r.tookOver {
				j.fail("told", "%s: the handler heard key %q, attempt %d, took over %v; the Observer attempt %d, took over %v",
					l.Key, l.Text, l.Attempt, l.TookOver, r.attempt, r.tookOver)
			}
		case opEnded, opGaveUp:
			i := slices.IndexFunc(all[l.Key], func(r *onceRun) bool { return r.id == l.Run })
			if i < 0 {
				j.fail("begin", "%s: %s ends and has not begun", l.Key, l.Run)
				continue
			}
			r := all[l.Key][i]
			if l.Op == opEnded {
				r.ended, r.sum = l.At, l.Sum
				continue
			}
			r.gaveUp = l.At
			if (r.death == nil || l.At < r.death.at) && !slices.Contains(j.permits, "lost") {
				j.fail("fault", "%s: %s gave up: %s", l.Proc, l.Key, l.Text)
			}
		}
	}
	for _, runs := range all {
		slices.SortStableFunc(runs, func(a, b *onceRun) int { return cmp.Compare(a.granted, b.granted) })
	}
	return all
}

// judgeAnswers checks that only permitted answers were given, that at most one of them is not a
// replay, that all are equal, and that they are the answer of the last run.
func (j onceJudge) judgeAnswers(k onceKeyOf) {
	fresh := 0
	var first *answer
	for _, a := range k.answers {
		j.verdict.answers++
		switch a.kind {
		case done:
			if a.replayed {
				j.replays++
			} else {
				fresh++
			}
			if first == nil {
				first = &a
			} else if a.sum != first.sum && !j.serverFailed() {
				j.fail("client", "%s: answers differ: of %s and of %s", k.name, first.run, a.run)
			}
			j.judgeOrigin(k, a)
		case unknown:
			if !k.kind.most {
				j.fail("answer", "%s: its outcome is unknown, and it may run again", k.name)
			}
		case inProgress, unavailable:
		case lost:
			if !slices.Contains(j.permits, "lost") {
				j.fail("answer", "%s: a run lost its lease", k.name)
			}
		default:
			j.fail("answer", "%s: %s", k.name, a.kind)
		}
	}
	if fresh > 1 && !j.serverFailed() {
		j.fail("fresh", "%s: %d answers are not marked as replays", k.name, fresh)
	}
}

// judgeOrigin checks that a was made by a run of the key, and that no run was granted later.
func (j onceJudge) judgeOrigin(k onceKeyOf, a answer) {
	i := slices.IndexFunc(k.runs, func(r *onceRun) bool { return r.id == a.run })
	switch {
	case i < 0:
		j.fail("origin", "%s: the answer is of %q, which is not in the journal", k.name, a.run)
		return
	case k.runs[i].ended == 0 || k.runs[i].sum != a.sum:
		j.fail("origin", "%s: the answer is not what %s made", k.name, a.run)
	}
	if last := k.runs[len(k.runs)-1]; !j.serverFailed() && (i != len(k.runs)-1 || last.granted > a.got) {
		j.fail("after", "%s: recorded was %s, and %s ran after it", k.name, a.run, last.id)
	}
}

// judgeSecondRuns checks that only a key from before the last fault of a server ran again without a
// takeover.
func (j onceJudge) judgeSecondRuns(k onceKeyOf) {
	more := -1
	for _, r := range k.runs {
		if more++; r.tookOver {
			more--
		}
	}
	if more <= 0 {
		return
	}
	j.verdict.secondRuns += more
	if !j.rules.secondRuns || k.runs[0].granted > latest(j.failed, math.MaxInt64)+int64(j.lag) {
		j.fail("again", "%s: %d runs more than takeovers explain", k.name, more)
	}
}

// judgeRuns checks that the runs of a key follow one another. The next run begins only after the
// death of the run before and the end of its lease. It learns of the takeover, and counts as an
// attempt.
func (j onceJudge) judgeRuns(k onceKeyOf) {
	for i, r := range k.runs {
		last, free := new(onceRun), j.asked[k.name]
		if i > 0 {
			last = k.runs[i-1]
			free = last.granted
			if last.death != nil {
				free = last.leaseEnd(j.lease)
			}
			j.judgeNext(k, last, r)
		}
		if skipped := r.attempt - last.attempt - 1; skipped != 0 { // by a process that died with the key before its Observer was notified
			if skipped < 0 || j.deathsBetween(free, r.granted-int64(j.lease-renewal(j.lease)-unwritten)) < skipped {
				j.fail("attempt", "%s: attempt %d follows attempt %d", k.name, r.attempt, last.attempt)
			}
			j.unseen += max(skipped, 0)
		}
		if told := r.attempt > 1 || i > 0; r.tookOver != told {
			j.fail("takeover", "%s: attempt %d, run %d in the journal, takes over: %v", k.name, r.attempt, i+1, r.tookOver)
		}
		if r.tookOver {
			j.takeovers++
		}
		switch {
		case r.gaveUp > 0 || r.ended > 0:
		case r.death == nil:
			j.fail("end", "%s: %s neither ended nor was killed", k.name, r.id)
		case r.begun > 0:
			j.midRun++
		}
	}
}

// judgeNext judges r after last.
func (j onceJudge) judgeNext(k onceKeyOf, last, r *onceRun) {
	switch {
	case k.kind.most && last.begun > 0 && r.begun > 0:
		j.fail("most", "%s: %s begins after %s had begun", k.name, r.id, last.id)
	case last.dead(r.granted) && r.granted < last.leaseEnd(j.lease):
		j.fail("early", "%s: granted %v before the lease of %s could be over", k.name, time.Duration(last.leaseEnd(j.lease)-r.granted), last.proc)
	case last.dead(r.granted):
	case last.stop() == 0 || last.stop() > r.granted:
		j.fail("overlap", "%s: %s is granted the key while %s runs, in %s, which lives", k.name, r.proc, last.id, last.proc)
	default:
		j.fail("again", "%s: %s is granted the key after %s had ended, in %s, which lives", k.name, r.proc, last.id, last.proc)
	}
	if r.held != "" && last.held != "" && r.held != last.held {
		j.fail("told", "%s is held as %s and as %s", k.name, last.held, r.held)
	}
}

func (o *oracle) deathsBetween(from, to int64) (n int) {
	for _, d := range o.deaths {
		if d.gone >= from && d.at <= to {
			n++
		}
	}
	return n
}

// judgeUnknown checks that the outcome of an at-most-once key is unknown if and only if its run was
// killed. All calls get that answer, and none gets it before the end of the lease.
func (j onceJudge) judgeUnknown(k onceKeyOf) {
	is := func(kind string) func(answer) bool { return func(a answer) bool { return a.kind == kind } }
	if !slices.ContainsFunc(k.answers, is(unknown)) {
		if n := len(k.runs); k.kind.most && n > 1 {
			j.fail("most", "%s: granted %d times", k.name, n)
		}
		return
	}
	j.verdict.unknown++
	if slices.ContainsFunc(k.answers, is(done)) {
		j.fail("unknown", "%s: its outcome is unknown to some, and some have it", k.name)
	}
	for _, a := range k.answers {
		switch {
		case a.kind != unknown:
		case len(k.runs) == 0:
			if j.deathsBetween(j.asked[k.name], a.got-int64(j.lease-renewal(j.lease)-unwritten)) == 0 {
				j.fail("unknown", "%s: no process was killed", k.name)
			}
		case !k.runs[len(k.runs)-1].dead(a.got):
			j.fail("unknown", "%s: %s was not killed before", k.name, k.runs[len(k.runs)-1].id)
		case a.got < k.runs[len(k.runs)-1].leaseEnd(j.lease):
			j.fail("early", "%s: its outcome is unknown before its lease was over", k.name)
		}
	}
	if len(k.runs) == 0 {
		j.unseen++
	}
}

// judgeWaits checks the calls of living processes. While no living process runs the key, a call
// waits for at most one lease and recovery. Each attempt that is in no line of the journal costs one
// lease more.
func (j onceJudge) judgeWaits(k onceKeyOf) {
	for _, a := range k.answers {
		from, attempt, dead := a.sent, 0, false
		for _, r := range k.runs {
			if r.granted >= a.got {
				break
			}
			if r.granted > from {
				j.judgeWait(k, from, r.granted, r.attempt-attempt, dead)
			}
			if r.stop() == 0 { // another check reports that
				return
			}
			from, attempt, dead = max(from, r.stop()), r.attempt, r.dead(a.got)
		}
		j.judgeWait(k, from, a.got, 1, dead)
	}
}

func (j onceJudge) judgeWait(k onceKeyOf, from, to int64, leases int, dead bool) {
	wait := time.Duration(to - from)
	if dead {
		j.deadWait = max(j.deadWait, wait)
	}
	if limit := time.Duration(max(leases, 1))*(j.lease+recovery) + slack; wait > limit+j.late(from, to) {
		j.fail("wait", "%s: a call waited %v for a dead process, at most %v", k.name, wait, limit)
	}
}
