package lockcore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

// State is the state of a key.
type State string

// The states of a key.
const (
	// StateFree: any call gets the key.
	StateFree = State(backend.StateFree)
	// StateHeld: a holder has the key alone.
	StateHeld = State(backend.StateHeld)
	// StateShared: shares of the key are held or cooling, see AcquireShare.
	StateShared = State(backend.StateShared)
	// StateReserved: released, and reserved for 500 ms for the first process in the remote queue.
	StateReserved = State(backend.StateReserved)
	// StateCooling: free, and kept from all calls for the rest of Terms.MinHold or of a pause.
	StateCooling = State(backend.StateCooling)
	// StateDone: the once key has a record, of a result or of a failure.
	StateDone = State(backend.StateDone)
	// StateAbandoned: the lease of the once key expired without a release, or its holder called
	// Abandon, and no run has begun since then.
	StateAbandoned = State(backend.StateAbandoned)
)

// Holding is the state of a key, with its holder and its record, as the backend has it.
type Holding struct {
	State State
	// Holder has the key.
	//
	//   - a shared key: the holder of the share that was granted last
	//   - an abandoned key, or with Died: the last holder
	//   - a done key: the holder that completed it
	//   - otherwise empty
	Holder event.Holder
	// GrantedAt is the start of the hold that has the key, had it last, or completed it, by the
	// clock of the backend. After a hand-off it is up to 5 ms too early. It is zero if no hold is
	// remembered.
	GrantedAt time.Time
	HeldFor   time.Duration // since that hold began; of a shared key since its first share
	// Remaining is the rest of the lease if it is not renewed (held), of the reservation
	// (reserved), or of MinHold (cooling). Of a shared key it is the time until its last share
	// ends. In other states it is 0.
	Remaining time.Duration
	// Lease is the time for which the lease of a held key was granted, or renewed last. So that was
	// Lease - Remaining ago. In other states it is 0.
	Lease time.Duration
	// Fixed is true if the lease of a held key is not renewed: it comes from AcquireFixed, or the hold
	// was transferred and not adopted.
	Fixed       bool
	Transferred bool          // the hold of a held key was transferred by Lease.Ticket, and not adopted yet
	Token       int64         // of the last hold; 0 if none is remembered
	Attempt     int           // runs of a once key; 0 for an exclusive one
	KeepLeft    time.Duration // done, abandoned: how much longer that is remembered; otherwise 0
	Queue       int           // processes in the remote queue
	Revoked     bool          // Revoke was called: the hold is no longer renewed
	PauseLeft   time.Duration // rest of a pause; 0: the key is not paused
	PauseReason string        // of the pause, see Locker.Pause; empty: the key is not paused
	// Restriction is that of Locker.Restrict; For is what is left of it. The zero value: none.
	Restriction Restriction
	// NotReleased: a free exclusive key, and its last hold ended without a release. Its holder died, or
	// ignored the end of its ctx, or called Abandon.
	NotReleased bool
	Record      *Record // done

	Weights int // shared: sum of the weights of the shares, including those that are cooling; too large while more than 800 expired shares are not removed
	// Shares are the shares of a shared key that end first, at most 100.
	Shares []Share

	// RateFullIn is the time until the whole Burst of the key's rate may begin at once: more than 0 if
	// calls of Throttled or Limit.Rate have begun recently, or Spend has taken a cost. NextTurnIn is
	// the time until the rate lets a call of the first process in Queue begin, or 0. Parked tasks are not in Queue.
	RateFullIn, NextTurnIn time.Duration

	// WaitingCalls is the number of calls that wait in the processes of Queue, and OldestWait is for how
	// long the oldest of them has waited. A process says both after a call has waited for a second, and
	// then about every 10 s, so they are up to 15 s old. Before that, and after the first 100, a process
	// counts as one call without a wait. Calls that wait behind a hold of their own process do
	// not count.
	WaitingCalls int
	OldestWait   time.Duration

	// Parked is the number of tasks that wait for the key outside of their workers.
	Parked    int
	ParkedFor time.Duration // since the oldest of these was parked for the first time
	// OldestParked names that task: deployment, queue and task ID, separated by slashes. Each of them is escaped with url.PathEscape.
	OldestParked string

	// If only the newest task of the key must run, LatestTask names it as OldestParked does, until a
	// success covers it. LatestAge is the time since its first delivery, or since the newest success
	// began if that is later; 0: none is remembered.
	LatestTask string
	LatestAge  time.Duration
}

// Share is a share of a key.
type Share struct {
	Limit     Limit // of the call that got it
	Holder    event.Holder
	HeldFor   time.Duration // since its hold began
	Remaining time.Duration // of its lease if it is not renewed, or of MinHold
	Cooling   bool          // it was released, and its weight counts for the rest of MinHold
}

// Inspect returns the state of a key, as the backend has it, and the record of a done key. It acquires nothing and changes
// nothing. It reads from the primary, never from a replica. If no reply arrives, it sends the
// command again, for at most 1 s.
//
// For about 300 ms after a hand-off inside a process, Inspect may name an earlier hold of that
// process.
//
// Errors:
//
//   - ErrKey, or an error that names the kind if it is unknown
//   - ErrRecord if the data of the key cannot be read
//   - ErrUnavailable, also after Close
//   - [context.Cause] if ctx has ended before
func (l *Locker) Inspect(ctx context.Context, kind event.Kind, key string) (Holding, error) {
	k, err := l.operatorKey(ctx, kind, key)
	if err != nil {
		return Holding{}, err
	}
	s, err := l.backend.Inspect(ctx, &k, backend.WholeRecord)
	if err != nil {
		return Holding{}, unavailable(err)
	}
	h := holdingOf(&s)
	if h.State == StateDone {
		h.Record = &Record{Data: s.Record, Attempt: h.Attempt}
	}
	return h, nil
}

func holdingOf(s *backend.Status) Holding {
	h := Holding{
		State: State(s.State), Holder: holderOf(s.Locker, s.Holder), GrantedAt: s.GrantedAt, HeldFor: s.HeldFor, Remaining: s.Remaining, Token: s.Token, Attempt: s.Attempt,
		Lease: s.Lease, KeepLeft: s.KeepLeft, Queue: s.Queue, Revoked: s.Revoked, PauseLeft: s.PauseLeft, PauseReason: s.Paused, Restriction: restrictionOf(s.Restriction), NotReleased: s.Died, Parked: s.Parked, ParkedFor: s.ParkedFor, OldestParked: s.OldestParked,
		Weights: s.Weights, RateFullIn: s.RateFull, NextTurnIn: s.NextTurn, WaitingCalls: s.Waits.Calls, OldestWait: s.Waits.Oldest,
		LatestTask: s.Trigger, LatestAge: s.TriggerAge,
	}
	if h.State == StateHeld {
		holder := backend.ParseHolder(s.Holder)
		h.Fixed, h.Transferred = holder.Unrenewed, holder.Transferred
	}
	for _, b := range s.Shares {
		h.Shares = append(h.Shares, Share{
			Limit: limitOf(backend.Share{Limit: b.Limit, Weight: b.Weight}), Holder: holderOf(b.Locker, b.Holder), HeldFor: b.HeldFor, Remaining: b.Remaining, Cooling: b.Cooling,
		})
	}
	return h
}

// Revoke ends the hold of a key, or all its shares: the ctx of each holder is canceled with
// ErrRevoked. The key is free when the handlers have returned, or at the end of the lease, never
// sooner. A key without a holder is not an error. The errors are those of Inspect.
//
// The holder receives a notification. Its process subscribes to notifications while it waits for a
// key, or has held any lease, even a fixed one, for longer than a second:
//
//   - A subscribed process cancels the ctx within milliseconds.
//   - A process that is not subscribed yet cancels it when it subscribes.
//   - If the notification is lost, a renewed lease is canceled with its next renewal. A lease
//     of AcquireFixed is canceled when the process subscribes again, or at its end.
func (l *Locker) Revoke(ctx context.Context, kind event.Kind, key string) error {
	_, err := l.revoke(ctx, kind, key, 0)
	return err
}

// RevokeIfUnchanged revokes the grant or phase that seen shows, a result of Inspect. If another one has
// the key, or none does, it changes nothing and returns an error that satisfies ErrChanged. Holds that a
// process hands off within 5 ms have one grant, and shares have one phase. The other errors are those of
// Inspect.
func (l *Locker) RevokeIfUnchanged(ctx context.Context, kind event.Kind, key string, seen Holding) error {
	revoked, err := l.revoke(ctx, kind, key, max(seen.Token, 1))
	if err == nil && !revoked {
		err = fmt.Errorf("%w: %q", ErrChanged, key)
	}
	return err
}

func (l *Locker) revoke(ctx context.Context, kind event.Kind, key string, seen int64) (revoked bool, err error) {
	k, err := l.operatorKey(ctx, kind, key)
	if err != nil {
		return false, err
	}
	if revoked, err = l.backend.Revoke(ctx, backend.RevokeRequest{Key: &k, Seen: seen}); err != nil {
		return false, unavailable(err)
	}
	return revoked, nil
}

// Clear forgets that a key is done, abandoned or cooling, so that it can run again. It is for
// operators, because the forgotten run may have had its effect. If the key is held, Clear changes
// nothing and returns an error that satisfies ErrBusy, but is not a *BusyError. The other errors
// are those of Inspect. [Locker.ClearIfUnchanged] acts only if the key is as you have seen it.
func (l *Locker) Clear(ctx context.Context, kind event.Kind, key string) error {
	return l.clear(ctx, kind, key, backend.ClearRequest{})
}

// ClearIfUnchanged is Clear if no run of the key has begun or been completed since seen, a result of
// Inspect. Otherwise it changes nothing and returns an error that satisfies ErrChanged. For a key
// whose data cannot be read, pass the zero Holding, which Inspect returns with ErrRecord.
func (l *Locker) ClearIfUnchanged(ctx context.Context, kind event.Kind, key string, seen Holding) error {
	r := backend.ClearRequest{Condition: backend.ClearIfSame, Token: seen.Token, Done: seen.State == StateDone}
	if seen.State == "" {
		r = backend.ClearRequest{Condition: backend.ClearIfUnreadable}
	}
	return l.clear(ctx, kind, key, r)
}

func (l *Locker) clear(ctx context.Context, kind event.Kind, key string, r backend.ClearRequest) error {
	k, err := l.operatorKey(ctx, kind, key)
	if err != nil {
		return err
	}
	r.Key = &k
	reply, err := l.backend.Clear(ctx, r)
	switch {
	case err != nil:
		return unavailable(err)
	case reply == backend.ClearHeld:
		return fmt.Errorf("%w: %q is held and cannot be cleared", ErrBusy, key)
	case reply == backend.ClearChanged:
		return fmt.Errorf("%w: %q", ErrChanged, key)
	}
	return nil
}

// operatorKey checks the arguments of an operator's call.
func (l *Locker) operatorKey(ctx context.Context, kind event.Kind, key string) (backend.Key, error) {
	if kind != event.KindExclusive && kind != event.KindOnce {
		return backend.Key{}, fmt.Errorf("lockcore: kind is %v, must be KindExclusive or KindOnce", kind)
	}
	if err := checkKey(key); err != nil {
		return backend.Key{}, err
	}
	if ctx.Err() != nil {
		return backend.Key{}, context.Cause(ctx)
	}
	return l.backend.Key(backend.Kind(kind), key), nil
}
