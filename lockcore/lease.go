package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	freeTTL      = time.Minute    // of a free exclusive key: its token floor
	abandonedTTL = 24 * time.Hour // of an abandoned one
	claimWindow  = 500 * time.Millisecond
)

// Lease is the time-limited right to a key, kept alive by the watchdog until it is released. Acquire and Claim make it.
// Each must be ended once, when the handler has returned: by Release, or one of a Claim by Complete or Abandon; calls
// after the first change nothing and return ErrReleased, or why the lease ended early.
//
// A nil *Lease, which Acquire returns with an error, behaves as a released lease: its methods return ErrReleased and
// zero values. So a deferred Release before the check of the error does no harm.
type Lease struct {
	h      *hold
	nested *nested // of a run inside the first one
	ended  atomic.Bool
}

// Key is the key as it was given to Acquire or Claim.
func (le *Lease) Key() string {
	if le == nil {
		return ""
	}
	return le.h.g.line.key
}

// Context is what the handler must run under. It derives from the ctx of Acquire and is canceled before the lease can
// end; context.Cause then says ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp, and ErrReleased after Release, or when the last
// nested run inside it has returned.
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

// Token is the fencing number of this hold. It grows with every hold of the key, not with renewal or re-entry; it is about
// the server's time in µs, 1.8e15 today: store it as a 64-bit integer. A token that the resource does not check protects nothing.
func (le *Lease) Token() int64 {
	if le == nil {
		return 0
	}
	return le.h.token
}

// Attempt says which run of a once key this is, from 1; earlier ones failed, or were abandoned. Of an exclusive key: 1.
func (le *Lease) Attempt() int {
	if le == nil {
		return 0
	}
	return int(le.h.g.attempt)
}

// Abandoned says that a holder before never said how its run ended: its work may be half done.
func (le *Lease) Abandoned() bool { return le != nil && le.h.abandoned }

// Failed reports to the Observer that the handler of this lease failed with err: Released.Failed is err. Call it before
// Release, Complete or Abandon; the last call counts, and nil withdraws the report. It changes nothing else. On the
// lease of a nested call it does nothing, because the hold belongs to the outer call.
func (le *Lease) Failed(err error) {
	if le == nil {
		return
	}
	if le.nested != nil {
		return
	}
	le.h.g.mu.Lock()
	defer le.h.g.mu.Unlock()
	if le.h.told != nil {
		le.h.told.failed = err
	}
}

// Extend makes the lease end no sooner than d from now, 1 s to 1 h. It is for NoRenew; a lease with a watchdog needs it
// only before something that will stop the process for longer than a lease. It returns the cause if the lease has ended,
// ErrUnavailable if Redis did not answer within 1 s, and ErrRecord if the data of the key in Redis cannot be read.
// Within that second a broken connection is replaced. After an error the lease ends no sooner than it would have.
// MaxHold still bounds it, the key of a process that dies is not free before, and it is not handed over inside the
// process.
func (le *Lease) Extend(ctx context.Context, d time.Duration) error {
	if le == nil {
		return ErrReleased
	}
	if d < minLease || d > maxLease {
		return fmt.Errorf("lockcore: Extend by %v, must be between %v and %v", d, minLease, maxLease)
	}
	h, l := le.h, le.h.g.l
	if le.ended.Load() || !h.valid() {
		return le.endedBy()
	}
	reply, sent, err := l.conn.insist(ctx, l.conn.ends, renewScript, h.g.line.keys[:1], h.g.id, micros(d), h.g.retention(d), "")
	if err != nil {
		return unavailable(err)
	}
	switch kept, err := renewed(h.g.line.keys[0], reply, 0); {
	case errors.Is(err, ErrRecord):
		return err
	case err != nil:
		return unavailable(err)
	case kept != 1:
		h.g.lose(verdict(kept))
		return h.endedBy()
	}
	h.g.renewed(sent, d, nil)
	return h.endedBy() // it may have ended while the answer was on its way
}

// Release gives the key to the next call in line of this process or back to Redis, or counts a nested run out. It works on a ctx that has ended, for at most 1 s; what gets no
// answer goes on in the background, and the key is free at the lease's end at the latest; a once key counts as abandoned from then until Redis
// has heard of the release, which is tried for another hour. It returns nil if the key was
// ours from the grant until now, else why not: ErrLost, ErrMaxHold, ErrStalled, ErrRevoked, ErrGivenUp.
func (le *Lease) Release(ctx context.Context) error { return le.end(ctx, ending{}) }

// Complete stores record, keeps it for keep (1 s to 366 days), and with that ends a lease of Claim. Late is better than
// never: also a lease that has run out is completed, unless the key was granted to another meanwhile. It returns what Release would: nil says that
// the key was ours, not that the record is stored. What gets no answer within 1 s goes on in the background while the lease is valid; if that was
// in vain the Observer hears CompletionFailed. With another keep, or of an exclusive key,
// it releases and returns an error.
func (le *Lease) Complete(ctx context.Context, record []byte, keep time.Duration) error {
	if le == nil {
		return ErrReleased
	}
	if le.h.g.line.kind != KindOnce || keep < time.Second || keep > maxKeep {
		err := fmt.Errorf("lockcore: Complete: kind of key is %s, keep is %v; must be once, and between 1s and %v", le.h.g.line.kind, keep, maxKeep)
		return errtext.Join(err, le.Release(ctx))
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
	parked               time.Time // until then nobody gets the key
}

func (le *Lease) end(ctx context.Context, e ending) error {
	if le == nil {
		return ErrReleased
	}
	h := le.h
	if !le.ended.CompareAndSwap(false, true) {
		return le.endedBy()
	}
	last, expired, late, r := h.leave(le.nested)
	if !last {
		return r.Lost
	}
	h.cancel(ErrReleased) // before anybody else gets the key
	g, l := h.g, h.g.l
	r.Completed, r.Abandoned = e.completed, e.abandoned
	if h.minHold > 0 && !e.completed && !e.abandoned {
		e.parked = h.parked()
	}
	handed := false
	defer func() { // also if the Observer panics
		if !handed {
			l.remove(g) // last: Close waits for the release too
		}
		l.cleanups.report()
	}()
	handed, r.Stale, r.Err = h.end(ctx, e, r.Lost == nil && !expired) //planted:handed-off-if-kept
	if late {
		h.tell(Lost{Cause: r.Lost})
		h.tell(Overrun{Cause: r.Lost})
	}
	if (r.Stale || expired && r.Err != nil) && r.Lost == nil {
		r.Lost = ErrLost
		h.tell(Lost{Cause: ErrLost})
	}
	if l.obs != nil {
		h.tell(r)
	}
	return r.Lost
}

// endedBy returns why the lease is over. The hold of a nested run may go on.
func (le *Lease) endedBy() error { return cmp.Or(le.h.endedBy(), ErrReleased) }

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
