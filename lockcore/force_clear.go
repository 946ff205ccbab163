package lockcore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// ForceOption is an option of ForceClear.
type ForceOption uint8

// EvenAlive makes ForceClear end the lease at once, even if its holder may be alive.
const EvenAlive ForceOption = 1

// ForceClear ends the lease of a holder that has died, so that the key need not stay held until the
// end of that lease. seen is a result of Inspect that names the hold. What follows is the same as
// after an expired lease:
//
//   - The next call takes the key over, with a greater fencing token. A waiting process is notified.
//   - A once key is abandoned. With AtMostOnce it is refused until Clear.
//
// ForceClear looks at the lease twice. A living holder renews it about every third of its length. If
// the last renewal is more recent, ForceClear waits until the next one must have been sent, for less
// than half of the lease, and then looks again. With EvenAlive it does neither.
//
// The holder may still work: its process may be cut off from Redis, its handler may ignore the end
// of its ctx, or EvenAlive is given. Then two handlers work on the key at the same time, and only a
// resource that checks fencing tokens refuses the old one. If the process of the holder lives, a
// notification ends the ctx of the hold with ErrLost, as for Revoke. If the call holds several keys,
// the others stay held.
//
// Errors, beside those of Inspect:
//
//   - ErrAlive: the holder has renewed its lease, or does not renew it (Holding.NoRenew). Nothing
//     was changed.
//   - ErrChanged: the key no longer has the hold of seen
//   - an error that names the state if seen is not held. Each share of a shared key ends with its
//     own lease.
func (l *Locker) ForceClear(ctx context.Context, kind Kind, key string, seen Holding, o ...ForceOption) error {
	k, err := l.operatorKey(ctx, kind, key)
	if err != nil {
		return err
	}
	if seen.State != StateHeld {
		return fmt.Errorf("lockcore: ForceClear: %q is %s, must be held by a call that has it alone", key, seen.State)
	}
	r := backend.ForceClearRequest{Key: &k, Token: seen.Token, Locker: seen.Holder.Locker}
	evenAlive := slices.Contains(o, EvenAlive)
	for looks := 1; ; looks++ {
		if !evenAlive {
			s, err := l.backend.Inspect(ctx, &k, backend.NoRecord)
			switch {
			case err != nil:
				return unavailable(err)
			case s.Token != r.Token || s.Locker != r.Locker:
				return fmt.Errorf("%w: %q", ErrChanged, key)
			case noRenew(&s):
				return fmt.Errorf("%w: the lease of %q is not renewed (NoRenew, or handed over to another process), so nothing shows that its holder has died", ErrAlive, key)
			}
			r.Silent = renewalTime(s.Lease) // at least the shortest lease: a hold that was handed over meanwhile is too young for the script
		}
		reply, err := l.backend.ForceClear(ctx, r)
		switch {
		case err != nil:
			return unavailable(err)
		case reply.Outcome == backend.ClearChanged:
			return fmt.Errorf("%w: %q", ErrChanged, key)
		case reply.Outcome == backend.Cleared:
			l.report(ctx, ForceCleared{Kind: kind, Key: key, Holder: seen.Holder, Token: seen.Token, EvenAlive: evenAlive})
			return nil
		case looks == 2:
			return fmt.Errorf("%w: %q is held by %v, which has just renewed its lease", ErrAlive, key, seen.Holder)
		}
		if err := l.pause(ctx, reply.Wait); err != nil {
			return err
		}
	}
}

// renewalTime returns how long after a renewal a living holder has sent the next one: the longest
// period of the watchdog (11/30 of the lease), and time for a few tries without a reply.
func renewalTime(lease time.Duration) time.Duration {
	return lease*2/5 + min(lease/20, time.Second)
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
