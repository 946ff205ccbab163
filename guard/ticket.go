package guard

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Ticket transfers the innermost hold of key that ctx carries, and returns the ticket. The process
// that uses the ticket within d gets the hold, see [lockcore.Lease.Ticket]. It calls [WithTicket]
// or [lockcore.Locker.Adopt]. d is at least the Lease and at most 24 h.
//
// Ticket ends the hold of the handler, and cancels its ctx with lockcore.ErrReleased. Send the
// ticket with [Detach](ctx). If that fails, adopt the ticket and release the lease. Otherwise the
// key stays held for d, and is then abandoned.
//
// The call around the handler ends without an outcome:
//
//   - [Exclusive] returns the handler's error, or nil.
//   - [Once] returns Outcome Transferred with the handler's error. It records nothing, not even for
//     [Final] or with AtMostOnce.
//   - An error of the handler does not undo the transfer.
//
// A repetition of the job finds the key busy until the hold of the adopter has ended. It runs again
// unless the adopter has completed the key. So no work is lost, and no two runs overlap.
func Ticket(ctx context.Context, key string, d time.Duration) (string, error) {
	return access.Ticket(ctx, key, d)
}

type ticketKey struct{}

// WithTicket returns a ctx with which the next [Exclusive] or [Once] of the key adopts the hold of
// ticket instead of waiting for it. The run of a once key continues with the same attempt.
//
//   - If Adopt fails with lockcore.ErrLost or lockcore.ErrRevoked, the call acquires the key like a
//     call without a ticket.
//   - A call for another key, or for the other kind of key, ignores the ticket. So do [Shared] and
//     [Limited].
//   - The fingerprint of the call is not compared with that of the hold.
func WithTicket(ctx context.Context, ticket string) context.Context {
	return context.WithValue(ctx, ticketKey{}, ticket)
}

// adopt adopts the hold of the ticket in ctx, if it is for key. It returns neither a lease nor an
// error if the caller has to acquire the key. inner is the ctx without the ticket.
func adopt(ctx context.Context, locks *lockcore.Locker, kind event.Kind, key string, t lockcore.Terms) (inner context.Context, lease *lockcore.Lease, err error) {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	if ticket == "" {
		return ctx, nil, nil
	}
	switch k, name, err := locks.TicketKey(ticket); {
	case err != nil:
		return ctx, nil, err
	case k != kind || name != key:
		return ctx, nil, nil
	}
	ctx = WithTicket(ctx, "")
	lease, err = locks.Adopt(ctx, ticket, t)
	if errors.Is(err, lockcore.ErrLost) || errors.Is(err, lockcore.ErrRevoked) {
		return ctx, nil, nil
	}
	return ctx, lease, err
}

// acquireOrAdopt calls Adopt with the ticket in ctx, or Acquire, or AcquireShare if n is not zero.
func acquireOrAdopt(ctx context.Context, locks *lockcore.Locker, key string, n lockcore.Limit, t lockcore.Terms) (*lockcore.Lease, error) {
	if n != (lockcore.Limit{}) { // a share adopts no hold
		return locks.AcquireShare(ctx, key, n, t)
	}
	ctx, lease, err := adopt(ctx, locks, event.KindExclusive, key, t)
	if lease != nil || err != nil {
		return lease, err
	}
	return locks.Acquire(ctx, key, t)
}

// claimOrAdopt calls Adopt with the ticket in ctx, or Claim.
func claimOrAdopt(ctx context.Context, locks *lockcore.Locker, key string, c lockcore.Claim) (*lockcore.Lease, *lockcore.Record, error) {
	ctx, lease, err := adopt(ctx, locks, event.KindOnce, key, c.Terms)
	if lease != nil || err != nil {
		return lease, nil, err
	}
	return locks.Claim(ctx, key, c)
}
