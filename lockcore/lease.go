package lockcore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	freeTTL      = time.Minute    // of a free exclusive key: its token floor
	abandonedTTL = 24 * time.Hour // of an abandoned one
	claimWindow  = 500 * time.Millisecond
)

// Lease is the time-limited right to a key, kept alive by the watchdog until it is released. Acquire and Claim make it.
// Each must be ended once, when the handler has returned: by Release, or one of a Claim by Complete or Abandon; calls
// after the first change nothing and return ErrReleased, or why the lease ended early.
type Lease struct {
	h     *hold
	ctx   context.Context //nolint:containedctx // a lease is a context
	untie func()
	ended atomic.Bool
}

// Key is the key as it was given to Acquire or Claim.
func (le *Lease) Key() string { return le.h.key }

// Context is what the handler must run under. It derives from the ctx of Acquire and is canceled before the lease can
// end; context.Cause then says ErrLost, ErrMaxHold, ErrRevoked or ErrGivenUp, and ErrReleased after Release.
func (le *Lease) Context() context.Context { return le.ctx }

// Token is the fencing number of this hold. It grows with every hold of the key, not with renewal or re-entry. A token
// that the resource does not check protects nothing.
func (le *Lease) Token() int64 { return le.h.token }

// Attempt says which run of a once key this is, from 1; earlier ones failed, or were abandoned. Of an exclusive key: 1.
func (le *Lease) Attempt() int { return le.h.attempt }

// Abandoned says that a holder before never said how its run ended: its work may be half done.
func (le *Lease) Abandoned() bool { return le.h.abandoned }

// Extend makes the lease end no sooner than d from now, 1 s to 1 h. It is for NoRenew; a lease with a watchdog needs it
// only before something that will stop the process for longer than a lease. It returns the cause if the lease has ended,
// ErrUnavailable if Redis did not answer; the lease then ends no sooner than it would have. MaxHold still bounds it, and
// the key of a process that dies is not free before.
func (le *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minLease || d > maxLease {
		return fmt.Errorf("lockcore: Extend by %v, must be between %v and %v", d, minLease, maxLease)
	}
	h := le.h
	if le.ended.Load() || !h.valid() {
		return h.endedBy()
	}
	sent := time.Now()
	reply, _, err := h.l.conn.run(ctx, h.l.conn.keep, renewScript, h.keys[:1], h.id, micros(d), h.retention(d))
	if err != nil {
		return unavailable(err)
	}
	switch kept, err := number(reply, 0); {
	case err != nil:
		return unavailable(err)
	case kept != 1:
		h.lose(verdict(kept))
		return h.endedBy()
	}
	h.renewed(sent, d)
	return h.endedBy() // it may have ended while the answer was on its way
}

// Release gives the key back, or counts a nested run out. It works on a ctx that has ended, for at most 1 s; what gets no
// answer goes on in the background and the key is free at the lease's end at the latest. It returns nil if the key was
// ours from the grant until now, else why not: ErrLost, ErrMaxHold, ErrRevoked, ErrGivenUp.
func (le *Lease) Release(ctx context.Context) error { return le.end(ctx, ending{}) }

// Complete stores record, keeps it for keep (1 s to 366 days), and with that ends a lease of Claim. Late is better than
// never: also a lease that has run out is completed, unless the key was granted to another meanwhile. It returns what Release would. What
// gets no answer within 1 s goes on in the background while the lease is valid. With another keep, or of an exclusive key,
// it releases and returns an error.
func (le *Lease) Complete(ctx context.Context, record []byte, keep time.Duration) error {
	if le.h.kind != KindOnce || keep < time.Second || keep > maxKeep {
		err := fmt.Errorf("lockcore: Complete of an %s key for %v: must be a once key and between 1s and %v", le.h.kind, keep, maxKeep)
		return errors.Join(err, le.Release(ctx))
	}
	return le.end(ctx, ending{completed: true, record: record, keep: keep})
}

// Abandon ends the lease without an outcome, as a crash would, but at once: the next claim is told, or refused. An abandoned
// key is remembered for Claim.Keep, at least 24 h. It returns what Release would.
func (le *Lease) Abandon(ctx context.Context) error { return le.end(ctx, ending{abandoned: true}) }

// ending is how a tenure ends.
type ending struct {
	completed, abandoned bool
	record               []byte
	keep                 time.Duration
}

func (le *Lease) end(ctx context.Context, e ending) error {
	if !le.ended.CompareAndSwap(false, true) {
		return le.h.endedBy()
	}
	if le.untie != nil {
		le.untie()
	}
	h := le.h
	last, expired, r := h.leave()
	if !last {
		return r.Lost
	}
	h.l.dog.remove(h)
	h.cancel(ErrReleased)
	r.Completed, r.Abandoned = e.completed, e.abandoned
	r.Stale, r.Err = h.finish(ctx, e)
	if (r.Stale || expired && r.Err != nil) && r.Lost == nil {
		r.Lost = ErrLost
		h.tell(Lost{Cause: ErrLost})
	}
	h.tell(r)
	h.l.remove(h) // last: Close waits for the release too
	return r.Lost
}

// finish sends the end, and hands it to the background if it gets no answer.
func (h *hold) finish(ctx context.Context, e ending) (stale bool, err error) {
	repeated := false
	send := func(ctx context.Context) error {
		gone, again, err := h.send(ctx, e, repeated)
		// A repeat finds the hold gone that its first copy ended: no verdict. A completion remembers by whom.
		stale = gone && (e.completed || !again && !repeated)
		repeated = repeated || again
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err = send(ctx); err == nil {
		return stale, nil
	}
	h.mu.Lock()
	until := h.sent.Add(h.lease)
	h.mu.Unlock()
	h.l.inBackground(until, func(ctx context.Context) error {
		_, _, err := h.send(ctx, e, true)
		return err
	}, func(err error) {
		if e.completed {
			h.l.Report(h.asked, CompletionFailed{Err: err})
		}
	})
	return false, err
}

func (h *hold) send(ctx context.Context, e ending, repeated bool) (gone, again bool, err error) {
	l := h.l
	var reply []any
	if e.completed {
		reply, again, err = l.conn.run(ctx, l.conn.keep, completeScript, h.keys[:],
			h.id, e.record, millis(e.keep), h.token, l.channel(""), flag(repeated || h.repeated))
	} else {
		abandon, keep := "0", h.keep
		if e.abandoned {
			abandon, keep = "1", max(h.keep, abandonedTTL)
		}
		reply, again, err = l.conn.run(ctx, l.conn.keep, releaseScript, h.keys[:],
			h.id, h.token, abandon, millis(keep), flag(repeated || h.repeated), micros(claimWindow), l.channel(""), flag(l.conn.single))
	}
	if err != nil {
		return false, again, err
	}
	n, err := number(reply, 0)
	return n == 0, again, err
}

// retention is the TTL of the hash while it is held: what is left of it after an abandoned lease.
func (h *hold) retention(lease time.Duration) int64 { return millis(lease + max(h.keep, abandonedTTL)) }

func (h *hold) endedBy() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cause != nil:
		return h.cause
	case h.closed:
		return ErrReleased
	case h.leftLocked() <= 0:
		return ErrLost
	}
	return nil
}

// verdict is the cause that a renewal's answer means.
func verdict(kept int64) error {
	if kept == 2 {
		return ErrRevoked
	}
	return ErrLost
}

func micros(d time.Duration) int64 { return d.Microseconds() }
func millis(d time.Duration) int64 { return d.Milliseconds() }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
