package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// enterB looks at A's ctx first: what ended before B came in is no overlap, whenever A's goroutine gets to run.
func (t *trial) enterB() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told != nil && t.told.Err() != nil && t.inA.to.IsZero() {
		t.inA.to = time.Now()
	}
	t.inB.from = time.Now()
}

// leave ends a stay, once.
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

// tell notes what A's caller was told: good, or the end of err.
func (t *trial) tell(good string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said, t.saidAt = good, time.Now()
	if err != nil {
		t.said = "error: " + gist(err)
	}
}

// tellWork notes whether A's handler was told to stop.
func (t *trial) tellWork(told context.Context) {
	if told.Err() == nil || errors.Is(told.Err(), context.DeadlineExceeded) {
		t.tell("kept", nil)
		return
	}
	t.tell("canceled", nil)
}

// gist is what says most of an error and has no addresses in it.
func gist(err error) string {
	text := strings.TrimSpace(err.Error())
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

// finding is what one trial has shown.
type finding struct {
	inconclusive string // why it has shown nothing
	together     time.Duration
	untold       bool          // both were in when the run was over: together is a lower bound
	told         time.Duration // from B's grant to A's end, negative if A was told before
	hasTold      bool
	bAfter       time.Duration // from the loss to B's grant
	bNever       bool
	stuck        time.Duration // the key was not to be had though nobody worked; to the end of the run where bNever
	said         string
	saidAfter    time.Duration
}

// find judges what has happened until now.
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
	began := now // of B, or of who was first
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
		f.said = "nothing"
	}
	return f
}

// phrase is what A's caller was told, with the time where it says something.
func (f finding) phrase(after float64) string {
	switch f.said {
	case "kept", "nothing":
		return f.said
	}
	return fmt.Sprintf("%s after %s s", f.said, brief(after))
}
