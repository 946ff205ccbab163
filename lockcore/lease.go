package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	freeTTL      = backend.FreeTTL // of a free exclusive key whose last token must be remembered
	abandonedTTL = 24 * time.Hour  // of an abandoned key, at least
	// refusedTTL is the minimum for an abandoned key that AtMostOnce refuses. It is longer than the
	// 90 days for which asynq keeps an archived task, because that task must not run again as long
	// as it exists.
	refusedTTL = 100 * 24 * time.Hour
)

// markFor returns how long an abandoned key is remembered.
func markFor(keep time.Duration, atMostOnce bool) time.Duration {
	if atMostOnce {
		return max(keep, refusedTTL)
	}
	return max(keep, abandonedTTL)
}

// Lease is the time-limited right to a key. Acquire, Claim and Adopt return it, and the watchdog
// renews it until it is released. End each lease once, when the handler has returned: by Release or
// Abandon, or a lease of a Claim by Complete. Later calls change nothing. They return ErrReleased,
// or why the lease ended early.
//
// A nil *Lease, which Acquire returns with an error, behaves as a released lease: its methods
// return ErrReleased and zero values. So a deferred Release before the check of the error does no
// harm.
type Lease struct {
	h      *hold
	nested *nested // of a nested run
	ended  atomic.Bool
}

// Key returns the key that was passed to Acquire or Claim.
func (le *Lease) Key() string {
	if le == nil {
		return ""
	}
	return le.h.grant.queue.key.Name
}

// Context returns the ctx for the handler. It derives from the ctx of Acquire and is canceled
// before the lease can end. [context.Cause] then returns ErrLost, ErrMaxHold, ErrStalled,
// ErrRevoked or ErrGivenUp. After this lease and all nested runs inside it are released, it returns
// ErrReleased.
func (le *Lease) Context() context.Context {
	if le == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrReleased)
		return ctx
	}
	if le.nested != nil {
		return le.nested
	}
	return le.h
}

// Token returns the fencing token of this hold. It grows with every hold of the key, not with a
// renewal or a nested call. It is about 1.8e15 today: store it as a 64-bit integer. A token
// protects only a resource that checks it.
func (le *Lease) Token() int64 {
	if le == nil {
		return 0
	}
	return le.h.token
}

// GrantedAt returns when this hold began, by the clock of the backend, which is the same for
// Lockers on all machines. For a hold that began with a hand-off it is the time of the grant plus
// the local time from the grant to the hand-off.
func (le *Lease) GrantedAt() time.Time {
	if le == nil {
		return time.Time{}
	}
	return le.h.serverGrantedAt()
}

// Attempt returns the number of this run of a once key, from 1: the runs before it failed or were
// abandoned. For an exclusive key it is 1.
func (le *Lease) Attempt() int {
	if le == nil {
		return 0
	}
	return int(le.h.grant.attempt)
}

// Abandoned reports whether the previous hold ended without an outcome: its work may be half done.
func (le *Lease) Abandoned() bool { return le != nil && le.h.abandoned }

// Failed reports the error of the handler to the Observer, as Released.Failed of this hold. It has
// no other effect.
//
//   - Call it before Release, Complete or Abandon. The last call counts, and nil clears the error.
//   - On the lease of a nested call it does nothing, because the hold belongs to the outer call.
func (le *Lease) Failed(err error) {
	if le == nil {
		return
	}
	if le.nested != nil {
		return
	}
	le.h.grant.mu.Lock()
	defer le.h.grant.mu.Unlock()
	if le.h.events != nil {
		le.h.events.failed = err
	}
}

// Extend makes the lease end no sooner than d from now, 1 s to 1 h. It is for [Locker.AcquireFixed].
// A renewed lease needs Extend only if the process will stop for longer than the lease. Errors:
//
//   - ErrReleased, or why the lease ended early, if it has ended
//   - ErrUnavailable if Redis did not reply within 1 s. Within that second Extend sends the command
//     again, also over a new connection.
//   - ErrRecord if the data of the key in Redis cannot be read
//   - an error that names d if d is out of range
//
// ErrUnavailable, ErrRecord and a bad d do not shorten the lease. MaxHold and Stall still bound the
// hold. If the process dies, the key stays held until the extended end. An extended lease is not
// handed off inside the process.
func (le *Lease) Extend(ctx context.Context, d time.Duration) error {
	if le == nil {
		return ErrReleased
	}
	if d < minLease || d > maxLease {
		return fmt.Errorf("lockcore: Extend: d is %v, must be between %v and %v", d, minLease, maxLease)
	}
	h, l := le.h, le.h.grant.l
	if le.ended.Load() || !h.valid() {
		return le.endedBy()
	}
	reply, sent := l.backend.Extend(ctx, backend.RenewRequest{
		Key: &h.grant.queue.key, ID: h.grant.id, Lease: d, Retention: h.grant.retention(d), Share: h.grant.shareOf(),
	})
	switch {
	case reply.Err != nil:
		return unavailable(reply.Err)
	case reply.Verdict != backend.VerdictKept:
		h.grant.lose(lossOf(reply.Verdict))
		return h.endedBy()
	}
	h.grant.renewed(sent, d, nil)
	return h.endedBy() // the lease may have ended while the reply was on its way
}

// Release ends this lease. The release of a nested lease ends only its run. The end of the last run
// passes the key to the next local waiter, or frees it in Redis.
//
// Release also works if ctx has ended, and takes at most 1 s. If no reply arrives, the Locker
// retries the release asynchronously. The key is free at the end of the lease at the latest. A once
// key is then abandoned until another call takes it over, or Redis gets the release. The
// Locker retries that for an hour after the lease.
//
// After a takeover (see Abandoned) Release ends the mark of the earlier run too. If the effect of
// that run is still unknown, call Abandon.
//
// Release returns nil if the hold had the key until now. Otherwise it returns why the lease ended
// early: ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp.
func (le *Lease) Release(ctx context.Context) error { return le.end(ctx, outcome{}) }

// Complete ends a lease of Claim and stores record, which makes the key done for keep (1 s to
// 366 days). It also stores the record after the lease expired, provided that no other holder has
// acquired the key.
//
// Complete returns the same as Release: nil means that the hold had the key, not that the record is
// stored. If no reply arrives within 1 s, the Locker retries the completion asynchronously while
// the lease is valid, and reports CompletionStored or CompletionFailed.
//
// If keep is out of range or the key is exclusive, Complete releases the key and returns an error.
func (le *Lease) Complete(ctx context.Context, record []byte, keep time.Duration) error {
	if le == nil {
		return ErrReleased
	}
	if le.h.grant.queue.key.Kind != backend.KindOnce || keep < time.Second || keep > maxKeep {
		err := fmt.Errorf("lockcore: Complete: kind of key is %s, keep is %v; must be once, and between 1s and %v", event.Kind(le.h.grant.queue.key.Kind), keep, maxKeep)
		return errtext.Join(err, le.Release(ctx))
	}
	return le.end(ctx, outcome{completed: true, record: record, keep: keep})
}

// Abandon ends the lease at once and without an outcome, as if the process had crashed. The next
// call takes the key over. A Claim with AtMostOnce is refused. An abandoned key is remembered for
// Claim.Keep, but for at least 24 h, or 100 days with AtMostOnce. Abandon returns the same as
// Release.
func (le *Lease) Abandon(ctx context.Context) error { return le.end(ctx, outcome{abandoned: true}) }

// outcome says how a hold ends.
type outcome struct {
	completed, abandoned bool
	record               []byte
	keep                 time.Duration
	coolUntil            time.Time // end of the cooldown; zero: none
}

func (le *Lease) end(ctx context.Context, e outcome) error {
	if le == nil {
		return ErrReleased
	}
	h := le.h
	if !le.ended.CompareAndSwap(false, true) {
		return le.endedBy()
	}
	last, expired, late, r := h.endRun(le.nested)
	if !last {
		return r.Lost
	}
	h.cancel(ErrReleased) // before another call gets the key
	g, l := h.grant, h.grant.l
	r.Completed, r.Abandoned = e.completed, e.abandoned
	if h.minHold > 0 && !e.completed && !e.abandoned {
		e.coolUntil = h.coolUntil()
	}
	handed := false
	defer func() { // also if the Observer panics
		if !handed {
			l.removeGrant(g) // after the release, so that Close waits for that too
		}
		l.backend.Report()
	}()
	handed, r.Stale, r.Err = h.end(ctx, e, r.Lost == nil && !expired, h.grantedAt().Add(r.Held)) //planted:handed-off-if-kept
	if late {
		h.emit(event.Lost{Cause: r.Lost})
		h.emit(event.Overrun{Cause: r.Lost})
	}
	if (r.Stale || expired && r.Err != nil) && r.Lost == nil {
		r.Lost = ErrLost
		h.emit(event.Lost{Cause: ErrLost})
	}
	if l.observer != nil {
		h.emit(r)
	}
	return r.Lost
}

// endedBy returns why the lease is over: why its hold is over, or ErrReleased if another run of
// that hold goes on.
func (le *Lease) endedBy() error { return cmp.Or(le.h.endedBy(), ErrReleased) }

// lossOf returns the cause of a loss by the verdict of a renewal.
func lossOf(v backend.Verdict) error {
	switch v {
	case backend.VerdictRevoked:
		return ErrRevoked
	case backend.VerdictReplaced:
		return ErrReplaced
	case backend.VerdictLost, backend.VerdictKept:
	}
	return ErrLost
}
