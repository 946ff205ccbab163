package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ending is how a run ended, as far as its worker has reported it.
type ending int

const (
	running ending = iota
	failed
	abandoned
	completed
)

// job is a once key with its runs. oracle.mu guards all fields.
type job struct {
	key     *keyState
	name    string
	tag     []byte
	most    bool // at most once
	since   time.Duration
	runs    []*run
	record  *run          // the run whose record the server has
	done    time.Duration // when record was set
	replays int
	stuck   bool // abandoned forever
}

type run struct {
	who     string
	attempt int
	data    []byte
	end     ending
	clean   time.Duration // when the server had confirmed its release
}

// job returns the current job, or starts the next one when the last one is over.
func (w *world) job(r rng) *job {
	w.mu.Lock()
	n := len(w.jobs)
	if n > 0 {
		if j := w.jobs[n-1]; j.replays < 3 && !j.stuck && w.now()-j.since < 40*time.Second {
			w.mu.Unlock()
			return j
		}
	}
	w.mu.Unlock()
	name := fmt.Sprintf("job%d", n)
	j := &job{key: w.key(name), name: name, most: r.chance(20), since: w.now()}
	if r.chance(50) {
		j.tag = []byte(name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) > n { // another worker was faster
		return w.jobs[n]
	}
	w.jobs = append(w.jobs, j)
	return j
}

// once claims the current job, and runs it or gets its record.
func (wk *worker) once() {
	w, j, t := wk.w, wk.w.job(wk.rng), wk.call()
	t.MaxHold = 0
	wt := wk.caller(t)
	defer wt.cancel()
	ctx := wt.ctx
	out := new(outcome)
	ctx = context.WithValue(ctx, outcomeKey{}, out)
	if t.Fixed {
		ctx = access.WithFixed(ctx)
	}
	c := lockcore.Claim{Terms: t.Terms, Fingerprint: j.tag, AtMostOnce: j.most}
	if wk.stranger(ctx, j, c) {
		return
	}
	w.wait(j.key, wt)
	le, rec, err := wk.n.locks.Claim(ctx, j.name, c)
	wk.returned(j.key, wt, err)
	switch {
	case rec != nil:
		w.replay(j, wk.name, rec)
	case le != nil:
		ten := w.grant(j.key, wt, le)
		wk.run(j, w.begin(j, wk.name, le), ten, le, out)
	case errors.Is(err, lockcore.ErrAbandoned):
		w.abandonedFor(j, wk.name)
	case errors.Is(err, lockcore.ErrMismatch):
		w.fail("I10", j.key.name, "%s: %v, with the right fingerprint", wk.name, err)
	}
}

// stranger claims a done job with another fingerprint. It must get neither a run nor the record.
func (wk *worker) stranger(ctx context.Context, j *job, c lockcore.Claim) bool {
	wk.w.mu.Lock()
	done, since := j.record != nil, j.done
	wk.w.mu.Unlock()
	if j.tag == nil || !done || !wk.rng.chance(20) {
		return false
	}
	c.Fingerprint = []byte("another")
	le, rec, err := wk.n.locks.Claim(ctx, j.name, c)
	refused := errors.Is(err, lockcore.ErrMismatch) || errors.Is(err, lockcore.ErrUnavailable) || ctx.Err() != nil
	// The process may know only the last reply: if Redis was not reachable, or if MaxWaiting calls
	// wait and no message about the record has arrived yet.
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		unheard := wk.w.hushedLately() || wk.w.now()-since < prompt
		refused = refused || wk.n.calmFor() < settled || busy.Waiting > 0 && unheard
	}
	if le != nil || rec != nil || !refused {
		wk.w.fail("I10", j.key.name, "%s, with another fingerprint, got %v, %v, %v", wk.name, le, rec, err)
	}
	return true
}

// begin judges a new run. I9: it is not after a record, and after another run only if that one
// failed or the new one reports a takeover.
func (w *world) begin(j *job, who string, le *lockcore.Lease) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Runs++
	if le.Abandoned() {
		w.stats.Takeovers++
	}
	r := &run{who: who, attempt: le.Attempt(), data: fmt.Appendf(nil, "%s by %s, attempt %d\r\n\x00\xff", j.name, who, le.Attempt())}
	if j.record != nil {
		w.failLocked("I9", j.key, "%s runs after the record of %s", who, j.record.who)
	}
	if j.most && le.Abandoned() {
		w.failLocked("I9", j.key, "%s took over a job that runs at most once", who)
	}
	if n := len(j.runs); n > 0 {
		last := j.runs[n-1]
		if !le.Abandoned() && last.end != failed {
			w.failLocked("I9", j.key, "%s did not report a takeover, and run %d ended as %d", who, last.attempt, last.end)
		}
		if le.Attempt() <= last.attempt {
			w.failLocked("I9", j.key, "%s is run %d after %d", who, le.Attempt(), last.attempt)
		}
		if le.Abandoned() && last.clean > 0 && w.calmSince(last.clean-settled) {
			w.failLocked("I9", j.key, "%s reported that run %d was abandoned, and it was released", who, last.attempt)
		}
	}
	j.runs = append(j.runs, r)
	return r
}

// calmSince reports whether no fault has occurred in any process since at.
func (w *world) calmSince(at time.Duration) bool {
	for _, n := range w.nodes() {
		if c := n.calm.Load(); c == 0 || time.Duration(c) > at {
			return false
		}
	}
	return true
}

func (wk *worker) run(j *job, r *run, ten *hold, le *lockcore.Lease, out *outcome) {
	wk.handle(ten, wk.long())
	end, w := completed, wk.w
	switch {
	case wk.rng.chance(20):
		end = failed
	case wk.rng.chance(15):
		end = abandoned
	}
	w.release(ten)
	w.mu.Lock()
	r.end = end
	w.mu.Unlock()
	var err error
	switch end {
	case failed:
		err = le.Release(ten.ctx)
	case abandoned:
		err = le.Abandon(ten.ctx)
	default:
		err = le.Complete(ten.ctx, r.data, 5*time.Minute)
	}
	told := out.released.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(j.key, "%s ended run %d as %d: %v, %+v", wk.name, r.attempt, end, err, told)
	switch {
	case told == nil:
		w.failLocked("I13", j.key, "%s: the event Released is missing", wk.name)
	case told.Err != nil || told.Stale:
	case end == completed:
		if j.record != nil && j.record != r {
			w.failLocked("I9", j.key, "%s completed after %s", wk.name, j.record.who)
		}
		if j.record == nil {
			j.record, j.done = r, w.now()
		}
	case end == failed && err == nil:
		r.clean = w.now()
	}
}

// replay judges a record. I10: it is the record of one completed run, byte for byte, and always the
// same.
func (w *world) replay(j *job, who string, rec *lockcore.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Replays++
	j.replays++
	if j.record == nil {
		for _, r := range j.runs {
			if r.end == completed && r.attempt == rec.Attempt {
				j.record, j.done = r, w.now()
			}
		}
	}
	if j.record == nil || !bytes.Equal(j.record.data, rec.Data) || j.record.attempt != rec.Attempt {
		w.failLocked("I10", j.key, "%s got %q of run %d, and the record is %+v", who, rec.Data, rec.Attempt, j.record)
	}
}

// abandonedFor records that the job may not run any more.
func (w *world) abandonedFor(j *job, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.stuck = true
	if !j.most {
		w.failLocked("I9", j.key, "%s was refused as abandoned", who)
	}
}
