package lockcore

import (
	"context"
	"slices"
	"time"
)

// Kind names the two namespaces of keys.
type Kind string

// The kinds of keys.
const (
	KindExclusive Kind = "exclusive" // not twice at the same time
	KindOnce      Kind = "once"      // not twice within Keep
)

// Attempt is what is known of a call before its first command. It is not the number of a run, which is Granted.Attempt.
type Attempt struct {
	Kind Kind
	Name string // Terms.Name
	Key  string // raw: hash it before it leaves the process
}

// Observer hears what a [Locker] does. Its methods must return quickly and must not call the Locker. They may be called
// from several goroutines, but those of one attempt come one after another, CompletionFailed and CompletionStored excepted.
//
// A panic of an Observer does not end the process if a goroutine of the Locker called it. That is so for Lost,
// RenewFailed, RenewPass, Overrun, CompletionFailed, CompletionStored and Traceparent. The Locker recovers and counts
// the panic, see [Locker.ObserverPanics]; the first one is logged with slog.Error and reported as Misconfigured.
// Otherwise the Locker works as without the panic. All other events are sent on the goroutine of the call that they
// belong to. A panic there reaches the caller, after the key is released if the call had it.
type Observer interface {
	// Start is called before the first command of a call. The ctx that it returns is the parent of the commands, of the
	// handler's ctx and of the events. A nested call on a key that ctx already holds is not reported.
	Start(ctx context.Context, a Attempt) context.Context
	// Event is called with the ctx of Start, except for RenewPass, CleanupFailed and what the packages above report (NoKey, ConflictLost,
	// PayloadDiffers, TickAbandoned, Misconfigured, some BadRecord), which belong to no attempt. Refused, Replayed or
	// Released is the last event of an attempt; only CompletionFailed or CompletionStored may follow. A new release may
	// add types of events: ignore unknown ones.
	Event(ctx context.Context, e Event)
	// Traceparent returns the W3C trace context of ctx, or "". It is stored with the hold, so that a waiter can link to it.
	// At most 128 bytes of it, without control characters.
	Traceparent(ctx context.Context) string
}

// Event is one of the types below; no other package can add one.
type Event interface{ event() }

// Waiting: another holder has the key and the call stands in line. Told once per attempt, as soon as it is known.
type Waiting struct {
	Holder    Holder
	Queue     int // see BusyError.Queue
	Remaining time.Duration
	// Nested says that a nested call has waited 2 s for another nested call of the same hold. Perhaps it should have
	// got the ctx of that call. The event belongs to the attempt of the hold, which was granted before.
	Nested bool
}

// Granted: the key is ours and the handler starts.
type Granted struct {
	Waited    time.Duration // since the call
	Contended bool          // it stood in line
	Queue     int           // longest line this call saw
	Token     int64
	Attempt   int  // Once: which run of the key this is, from 1; Exclusive: 1
	Abandoned bool // the holder before never said how its run ended
}

// Refused ends an attempt that did not run. If it was busy, Queue is that of the BusyError.
type Refused struct {
	Err       error         // satisfies errors.Is(err, ErrNotRun)
	Waited    time.Duration // since the call
	Contended bool          // it stood in line
	Queue     int
}

// Replayed ends an attempt whose key was done.
type Replayed struct {
	Waited    time.Duration // since the call
	Contended bool          // it stood in line
	Queue     int           // longest line this call saw
	Attempt   int           // which run of the key was recorded, from 1
}

// RenewFailed: a renewal got no answer. Told once until one succeeds again.
type RenewFailed struct{ Err error }

// Lost: the lease ended before its handler returned; Cause is ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp.
type Lost struct{ Cause error }

// Overrun: the handler ran on after its ctx had ended. Told at most once per lease: with the next renewal if only the
// caller's ctx ended; if the lease ended, when the handler returns more than 100 ms later.
type Overrun struct{ Cause error }

// Released ends an attempt that ran.
type Released struct {
	Held      time.Duration // from the grant to the handler's end
	Renewals  int           // renewals that succeeded
	Failures  int           // renewals that got no answer
	Lost      error         // why the lease ended before the handler, or nil
	Failed    error         // the handler's error as Lease.Failed reported it, or nil; raw: it may contain secrets
	Completed bool          // ended by Complete; Err says if there was no answer to that
	Abandoned bool          // this run was left without an outcome, by Abandon
	Stale     bool          // Redis no longer knew the hold
	Err       error         // the release or completion got no answer; it may go on in the background
}

// CompletionFailed: a record could not be stored while the lease was valid. It may come after Released.
type CompletionFailed struct{ Err error }

// CompletionStored: a record was stored in the background, after Complete got no answer. It may come after Released. An attempt whose
// Released has Completed and Err gets exactly one of CompletionStored and CompletionFailed.
type CompletionStored struct{}

// CleanupFailed: the Locker gave up withdrawals of requests, or releases of holds, that Redis has not confirmed. It
// belongs to no attempt. Such a key may stay held until its lease ends, and a once key may count as abandoned. The
// Locker gives up if Redis refuses the command for good, if a release has become useless, and at the end of Close.
type CleanupFailed struct {
	N   int   // requests and holds
	Err error // of the last one; ErrClosed after Close
}

// RenewPass: one batch of renewals, whatever its size. It belongs to no attempt.
type RenewPass struct {
	Leases int           // that were due
	Kept   int           // renewed
	Gone   int           // that Redis no longer has, or that were revoked
	Failed int           // without an answer
	Took   time.Duration // the whole batch
}

// NoKey is reported by the packages above: a job or request had no key.
type NoKey struct{ Name string }

// ConflictLost is reported by the packages above: a conflict used up the last attempt of a job.
type ConflictLost struct {
	Name   string
	Holder Holder
}

// PayloadDiffers is reported by the packages above when a done key is called again with another payload. The call got
// the record of the first payload, and nothing ran. See guard.OnceOptions.ReportOnly.
type PayloadDiffers struct {
	Name string // Terms.Name
	Key  string // raw: hash it before it leaves the process
}

// TickAbandoned is reported by package cronmw, once for each tick whose instance died and which no other instance runs.
type TickAbandoned struct {
	Name   string // Terms.Name
	Key    string // of the tick; raw: hash it before it leaves the process
	Holder Holder // the instance that died
}

// Misconfigured is reported by the packages above, once: something is missing in the setup.
type Misconfigured struct{ Problem string }

// BadRecord: a stored record does not decode, or is none that the package above wrote. It is refused, never replayed.
type BadRecord struct{ Err error }

func (Waiting) event()          {}
func (Granted) event()          {}
func (Refused) event()          {}
func (Replayed) event()         {}
func (RenewFailed) event()      {}
func (Lost) event()             {}
func (Overrun) event()          {}
func (Released) event()         {}
func (CompletionFailed) event() {}
func (CompletionStored) event() {}
func (RenewPass) event()        {}
func (CleanupFailed) event()    {}
func (NoKey) event()            {}
func (ConflictLost) event()     {}
func (PayloadDiffers) event()   {}
func (TickAbandoned) event()    {}
func (Misconfigured) event()    {}
func (BadRecord) event()        {}

// Join returns an Observer that tells each of o in order; nil ones are left out. The first traceparent wins.
func Join(o ...Observer) Observer {
	var j joined
	for _, x := range o {
		if x != nil {
			j = append(j, x)
		}
	}
	switch len(j) {
	case 0:
		return nil
	case 1:
		return j[0]
	}
	return j
}

type joined []Observer

func (j joined) Start(ctx context.Context, a Attempt) context.Context {
	for _, o := range j {
		ctx = o.Start(ctx, a) //nolint:fatcontext // as deep as there are observers
	}
	return ctx
}

func (j joined) Event(ctx context.Context, e Event) {
	for _, o := range slices.Backward(j) { // the deferred calls run in the order of j, and all of them run even if one panics
		defer o.Event(ctx, e)
	}
}

func (j joined) Traceparent(ctx context.Context) string {
	for _, o := range j {
		if tp := o.Traceparent(ctx); tp != "" {
			return tp
		}
	}
	return ""
}
