package event

import (
	"context"
	"slices"
	"time"
)

// Acquisition describes a call before its first command.
type Acquisition struct {
	Kind    Kind
	Name    string // Terms.Name
	Key     string // raw: hash it before it leaves the process
	Limit   int    // lockcore.Limit.N; 0: the call gets the key alone, or only waits for its Rate
	Rate    bool   // the call has a lockcore.Rate
	Backend string // "redis" or "memory (this process only)"
	Locker  string // UUID, see Locker.ID
}

// Observer receives the events of a lockcore.Locker. Its methods must return quickly and must not
// call the Locker. Several goroutines may call them at the same time. A call lasts from Start to
// its last event. The events of a call come one after another, except CompletionFailed and
// CompletionStored. [Join] makes one Observer of several.
//
// An Observer that reports no problems, because it only traces, has a method OnlyTraces() bool that
// returns true. Then the Locker logs its warnings as without an Observer.
//
// If the Observer panics:
//
//   - The Locker recovers and counts a panic in Lost, RenewFailed, RenewPass, GroupSent, Overrun,
//     CompletionFailed, CompletionStored, CleanupFailed, ServerFailed, ServerRecovered and Traceparent, and then works as without
//     the panic. Most of these calls come on goroutines of the Locker. It logs the first such panic
//     with slog.Error and reports it as Misconfigured.
//   - All other events come on the goroutine of the call that they belong to. A panic there reaches
//     the caller, after the call has released its key.
type Observer interface {
	// Start is called before the first command of a call. The ctx that it returns is the parent of
	// the commands, of the ctx of the handler, and of the events. Start is not called for a
	// nested call.
	Start(ctx context.Context, a Acquisition) context.Context
	// Event is called with the ctx of Start. Refused, Admitted, Replayed or Released is the last event of a
	// call; only CompletionFailed or CompletionStored may follow. These events belong to no
	// call and come with any ctx:
	//
	//   - RenewPass, GroupSent, CleanupFailed, ForceCleared, Paused, Restricted, ServerFailed,
	//     ServerRecovered and Misconfigured
	//   - BadRecord, if a middleware reports it
	//   - NoKey, ConflictLost, PayloadDiffers, TickAbandoned, Parked, Unparked, Replaced and
	//     RerunSkipped
	Event(ctx context.Context, e Event)
	// Traceparent returns the W3C trace context of ctx, or "". The backend stores at most 128 bytes
	// of it with the hold, without control characters. So a waiter can link to the span of the
	// holder.
	Traceparent(ctx context.Context) string
}

// Event is one of the event types of this package. A new release may add types: ignore unknown ones.
type Event any

// Waiting: another holder has the key, and the call waits. It is emitted once per call, as soon
// as the holder is known.
type Waiting struct {
	// Holder has the key. If its Locker is the ID of this Locker, it runs in this process. Perhaps
	// the handler of that hold made this call, and did not pass on its ctx.
	Holder    Holder
	Queue     int           // see BusyError.Queue
	Remaining time.Duration // see BusyError.Remaining
	// Nested is true if a nested call has waited 2 s for another nested call of the same hold.
	// Perhaps the program should have passed the ctx of that call to it. Such an event belongs to
	// the call that was granted the hold, and does not count as its one Waiting.
	Nested bool
}

// Wait describes the wait of a call. It is part of Granted, Refused, Admitted and Replayed, and not an event.
type Wait struct {
	Waited    time.Duration // since the call began
	Contended bool          // another holder, or another call of this process, was first
	Queue     int           // length of the longest wait queue that the call saw
}

// Granted: the call has the key and its handler starts.
type Granted struct {
	Wait
	Token     int64
	Attempt   int  // once key: number of this run, from 1; exclusive key: 1
	Abandoned bool // the previous holder ended without an outcome
}

// Refused ends a call that did not run. If Err is a *BusyError, Wait.Queue is at least
// BusyError.Queue.
type Refused struct {
	Wait
	Err error // satisfies errors.Is(err, ErrNotRun)
}

// Admitted ends a call of Throttle: its rate has let it begin, and it holds nothing.
type Admitted struct{ Wait }

// Replayed ends a call whose key was done.
type Replayed struct {
	Wait
	Attempt int // number of the run that was recorded, from 1
}

// RenewFailed: a renewal got no reply, too few replicas acknowledged it, or the data of the key
// cannot be read. It is emitted once, and again only after a renewal has succeeded.
type RenewFailed struct{ Err error }

// Lost: the lease ended before its handler returned. Cause is ErrLost, ErrMaxHold, ErrStalled,
// ErrRevoked, ErrReplaced or ErrGivenUp.
type Lost struct{ Cause error }

// Overrun: the handler ran on after its ctx ended. It is emitted at most once per hold:
//
//   - If the lease ended early, when the handler returns more than 100 ms later.
//   - If only the ctx of the caller ended, with the next renewal.
type Overrun struct{ Cause error }

// Released ends a call that ran. If Failed satisfies ErrBusy and Completed is false, a call
// inside the handler found its key busy. Then the call gave its own key back, and has not failed.
type Released struct {
	Held        time.Duration // from the start of the hold to the end of its last run
	Renewals    int           // renewals that succeeded
	Failures    int           // renewals that failed, see RenewFailed
	Lost        error         // why the lease ended early, or nil
	Failed      error         // the argument of Lease.Failed, or nil; raw: it may contain secrets
	Completed   bool          // ended by Complete; Err is set if that failed
	Abandoned   bool          // ended by Abandon
	Transferred bool          // ended by Ticket: not released, another process may adopt the hold
	Stale       bool          // Redis no longer had the hold
	Err         error         // why the release or completion failed, or nil; it may be retried later
}

// CompletionFailed: no completion was confirmed while the lease was valid. The record may be stored
// nevertheless, if only the reply was lost. The event may come after Released.
type CompletionFailed struct{ Err error }

// CompletionStored: a record was stored asynchronously, after Complete got no reply. The event may
// come after Released. A call whose Released has Completed and Err gets exactly one of
// CompletionStored and CompletionFailed.
type CompletionStored struct{}

// CleanupFailed: the Locker gave up withdrawals of requests, or releases of holds, that Redis has
// not confirmed. Such a key may stay held until its lease ends, and a once key may count as
// abandoned. The event belongs to no call. The Locker gives up:
//
//   - if a repeat would get the same error
//   - if a release has become useless
//   - at the end of Close
type CleanupFailed struct {
	N   int   // requests and holds
	Err error // of the last one; ErrClosed after Close
}

// RenewPass: one batch of renewals, even of a single lease, is over. It belongs to no call.
type RenewPass struct {
	Leases int           // in the batch: Kept, Gone and Failed together
	Kept   int           // renewed; a lease of AcquireFixed: still held
	Gone   int           // lost or revoked, by the reply of Redis
	Failed int           // without a verdict, see RenewFailed
	Took   time.Duration // for the whole batch
}

// GroupSent reports a group: calls that waited for another send and were then sent together, see
// Options.NoGroups. The event comes when the send of the group has ended, even if it failed, and
// belongs to no call.
//
//   - A group may have one call.
//   - A call that is sent at once is not reported.
//   - A call that is sent again, because the server did not have its script, is reported again.
type GroupSent struct {
	Calls  int           // in the group
	Waited time.Duration // of the first call of the group, until the group was sent
}

// ForceCleared: a call of lockcore.Locker.ForceClear on this Locker ended the lease of Holder.
type ForceCleared struct {
	Kind      Kind
	Key       string // raw: hash it before it leaves the process
	Holder    Holder
	Token     int64 // of the hold; the next one has a greater token
	EvenAlive bool  // by ForceClearEvenAlive: the holder may have been alive
}

// Paused: Pause was called for an exclusive key, by an operator or because the resource of a handler has
// refused it.
type Paused struct {
	Key    string        // raw: hash it before it leaves the process
	For    time.Duration // 0: the pause has ended
	Reason string
}

// Restricted: Restrict was called for an exclusive key.
type Restricted struct {
	Key    string        // raw: hash it before it leaves the process
	Limit  int           // 0: not restricted
	N      int           // of the rate; 0: not restricted
	Per    time.Duration // of the rate
	Burst  int           // of the rate
	For    time.Duration // 0: the restriction has ended
	Reason string
}

// ServerFailed: one of several independent servers did not reply to a request in time, or replied
// with an error. It is emitted once, and again only after ServerRecovered. It belongs to no call.
type ServerFailed struct {
	Server string // its address
	Err    error
}

// ServerRecovered: a server that had failed has replied again.
type ServerRecovered struct{ Server string }

// Misconfigured reports, once, a mistake in the setup of a middleware or of a Locker on PostgreSQL, or a
// panic of the Observer.
type Misconfigured struct{ Problem string }

// BadRecord: a stored record does not decode, or the package above did not write it. It is refused
// and never replayed.
type BadRecord struct{ Err error }

// Join returns an Observer that calls each Observer of o in order and skips nil Observers. It
// returns nil if there is none. Traceparent returns the first one that is not empty. Event calls
// all of them even if one panics.
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

// Discard is an Observer that does nothing. It also turns the warnings off that a Locker without an
// Observer logs.
var Discard Observer = discard{}

type discard struct{}

func (discard) Start(ctx context.Context, _ Acquisition) context.Context { return ctx }
func (discard) Event(context.Context, Event)                             {}
func (discard) Traceparent(context.Context) string                       { return "" }

type joined []Observer

// OnlyTraces reports whether all Observers only trace.
func (j joined) OnlyTraces() bool {
	for _, o := range j {
		if only, is := o.(interface{ OnlyTraces() bool }); !is || !only.OnlyTraces() {
			return false
		}
	}
	return true
}

func (j joined) Start(ctx context.Context, a Acquisition) context.Context {
	for _, o := range j {
		ctx = o.Start(ctx, a) //nolint:fatcontext // as deep as there are observers
	}
	return ctx
}

func (j joined) Event(ctx context.Context, e Event) {
	// The deferred calls run in the order of j, and all of them run even if one panics.
	for _, o := range slices.Backward(j) {
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
