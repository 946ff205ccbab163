package lockcore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

// ForceClear ends the lease of a holder that has died, so that the key need not stay held until the
// end of that lease. seen is a result of Inspect that names the hold. What follows is the same as
// after an expired lease:
//
//   - The next call takes the key over, with a greater fencing token. A waiting process is notified.
//   - A once key is abandoned. With AtMostOnce it is refused until Clear.
//
// ForceClear looks at the lease twice. A living holder renews it about every third of its length, and
// again after a sixth if a renewal is lost. ForceClear waits until one of them must have arrived, for
// at most 0.6 of the lease. The shortest wait is 1 to 7 s, longer for longer leases. If the lease
// ends meanwhile, the error is ErrChanged.
//
// The holder may still work: its process may be cut off from Redis, two of its renewals may be lost,
// or its handler may ignore the end of its ctx. Then two handlers work on the key at the same time,
// and only a resource that checks fencing tokens refuses the old one. If the process of the holder
// lives, a notification ends the ctx of the hold with ErrLost, as for Revoke. If the call holds
// several keys, the others stay held.
//
// Errors, beside those of Inspect:
//
//   - ErrAlive: the holder has renewed its lease, or does not renew it (Holding.Fixed). Nothing
//     was changed.
//   - ErrChanged: the key no longer has the hold of seen
//   - an error that names the state if seen is not held. Each share of a shared key ends with its
//     own lease.
func (l *Locker) ForceClear(ctx context.Context, kind event.Kind, key string, seen Holding) error {
	return l.forceClear(ctx, kind, key, seen, false)
}

// ForceClearEvenAlive is ForceClear without the check that the holder has died. It does not wait, and
// ends a living hold too. It never returns ErrAlive.
func (l *Locker) ForceClearEvenAlive(ctx context.Context, kind event.Kind, key string, seen Holding) error {
	return l.forceClear(ctx, kind, key, seen, true)
}

func (l *Locker) forceClear(ctx context.Context, kind event.Kind, key string, seen Holding, evenAlive bool) error {
	k, err := l.operatorKey(ctx, kind, key)
	if err != nil {
		return err
	}
	if seen.State != StateHeld {
		return fmt.Errorf("lockcore: ForceClear: %q is %s, must be held by a call that has it alone", key, seen.State)
	}
	r := backend.ForceClearRequest{Key: &k, Token: seen.Token, Locker: seen.Holder.Locker}
	if !evenAlive {
		h, err := l.look(ctx, &r)
		if err != nil {
			return err
		}
		// The servers' clocks may differ by 2 % in their rates, see clockPast.
		wait := max(renewalTime(h.Lease)-(h.Lease-h.Remaining), min(h.Lease/20, maxPause)*11/10+time.Second)
		if err := l.pause(ctx, wait+wait/50+5*time.Millisecond); err != nil {
			return err
		}
		if h, err = l.look(ctx, &r); err != nil { // a hold that is transferred after this look is too young for the script
			return err
		}
		r.Silent = renewalTime(h.Lease)
	}
	reply, err := l.backend.ForceClear(ctx, r)
	switch {
	case err != nil:
		return unavailable(err)
	case reply.Outcome == backend.ClearChanged:
		return fmt.Errorf("%w: %q", ErrChanged, key)
	case reply.Outcome == backend.ClearHeld:
		return fmt.Errorf("%w: %q is held by %v, which has just renewed its lease", ErrAlive, key, seen.Holder)
	}
	l.report(ctx, event.ForceCleared{Kind: kind, Key: key, Holder: seen.Holder, Token: seen.Token, EvenAlive: evenAlive})
	return nil
}

// look returns the hold of r. The error is ErrChanged if the key does not have it any more, and
// ErrAlive if it is not renewed.
func (l *Locker) look(ctx context.Context, r *backend.ForceClearRequest) (Holding, error) {
	s, err := l.backend.Inspect(ctx, r.Key, backend.NoRecord)
	switch {
	case err != nil:
		return Holding{}, unavailable(err)
	case s.State != backend.StateHeld || s.Token != r.Token || s.Locker != r.Locker:
		return Holding{}, fmt.Errorf("%w: %q", ErrChanged, r.Key.Name)
	}
	h := holdingOf(&s)
	if h.Fixed {
		return Holding{}, fmt.Errorf("%w: the lease of %q is not renewed (AcquireFixed, or transferred to another process), so nothing shows that its holder has died", ErrAlive, r.Key.Name)
	}
	return h, nil
}

// renewalTime returns how long after a renewal the next one of a living holder has arrived, even if
// one is lost: the longest period of the watchdog (11/30 of the lease), the time until it sends the
// renewal again (a sixth), and some time for the network.
//
// It does not suffice after an outage, in which no renewal can arrive. Then the watchdog tries again
// after a pause of at most a twentieth of the lease, or maxPause. So ForceClear waits at least that
// long between its looks.
func renewalTime(lease time.Duration) time.Duration {
	return lease*16/30 + min(lease/20, time.Second)
}

// pause waits for d, or until ctx ends or the Locker is closed.
func (l *Locker) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.base.Done():
		return unavailable(backend.ErrClosed)
	}
}
