package main

import (
	"context"
	"time"
)

func (t *trial) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loss = time.Now()
}

func (t *trial) enterA(told context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told, t.inA.from = told, time.Now()
}

// enterB first checks whether A's ctx has ended. If it ended before B's grant, there is no overlap,
// even if A's goroutine has not run since.
func (t *trial) enterB() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told != nil && t.told.Err() != nil && t.inA.to.IsZero() {
		t.inA.to = time.Now()
	}
	t.inB.from = time.Now()
}

// leave ends a stay. Further calls have no effect.
func (t *trial) leave(s *stay) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.to.IsZero() {
		s.to = time.Now()
	}
}

func (t *trial) call() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.called = time.Now()
}

// tell records the result for A's caller: good, or that the call returned an error.
func (t *trial) tell(good string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said, t.saidAt = good, time.Now()
	if err != nil {
		t.said = "error"
	}
}

// tellWork records whether A's handler was canceled.
func (t *trial) tellWork(told context.Context) {
	if told.Err() == nil {
		t.tell(kept, nil)
		return
	}
	t.tell("canceled", nil)
}

// Results for A's caller that have no time.
const (
	kept    = "kept"
	nothing = "nothing"
)

// finding is the result of one trial.
type finding struct {
	inconclusive string // why the trial has no result
	together     time.Duration
	untold       bool          // both were inside at the end of the run: together is a lower bound
	told         time.Duration // from B's grant to A's end; negative if A was canceled before
	hasTold      bool
	bAfter       time.Duration // from the loss to B's grant
	bNever       bool
	stuck        time.Duration // the time in which no handler worked and the key was not granted; until the end of the run if bNever
	said         string
	saidAfter    time.Duration
}

// find evaluates the trial with what has happened until now.
func (t *trial) find(now time.Time) finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, b := t.inA, t.inB
	switch {
	case t.point.Moment != loseAcquire && a.from.IsZero():
		return finding{inconclusive: "A did not get the key"}
	case t.loss.IsZero() && t.point.Moment == partition:
		return finding{inconclusive: "A had ended before"}
	case t.loss.IsZero():
		return finding{inconclusive: "A did not send the command"}
	}
	f := finding{bNever: b.from.IsZero(), said: t.said}
	began := now // of B, or of the first one
	if !f.bNever {
		began, f.bAfter = b.from, b.from.Sub(t.loss)
	}
	if !f.bNever && !a.from.IsZero() {
		f.together = max(min(a.until(now).Sub(b.from), b.until(now).Sub(a.from), a.until(now).Sub(a.from), b.until(now).Sub(b.from)), 0)
		f.untold = a.to.IsZero() && b.to.IsZero()
		f.told, f.hasTold = a.to.Sub(b.from), !a.to.IsZero()
	}
	since := a.until(now)
	switch t.point.Moment {
	case loseAcquire:
		since = t.loss
		if !a.from.IsZero() && a.from.Before(began) {
			began = a.from
		}
		f.saidAfter = t.saidAt.Sub(t.called)
	case loseRelease:
		since = t.called
		f.saidAfter = t.saidAt.Sub(t.called)
	case loseRenew:
		f.saidAfter = t.saidAt.Sub(t.loss)
	case partition:
	}
	f.stuck = max(began.Sub(since), 0)
	if f.said == "" && t.point.Moment != partition {
		f.said = nothing
	}
	return f
}
