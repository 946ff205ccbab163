package guard

import (
	"cmp"
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Latest runs fn alone, as [Exclusive] does, and covers the calls that wait with one run. If ten
// requests ask to rebuild an index at the same time, two rebuilds run: one for the first request,
// and one for the nine that waited:
//
//	ran, err := guard.Latest(ctx, locks, "index:42", lockcore.Terms{Wait: time.Minute}, rebuild)
//
// false and nil mean that fn did not run, because the run of another call began after this call
// did, and has succeeded. Of the calls that wait the oldest runs, so fn must read the state, and
// not carry it. If its process dies, the next one runs.
//
// A call succeeds when fn returns nil while it holds the key. If Redis does not reply then, the
// success is not recorded, and the calls that wait run too. ran reports whether fn ran. The errors
// are those of Exclusive, and lockcore.ErrUnsupported on a majority of servers.
// lockcore.ErrReplaced is one of them only if asynqmw.Latest with Interrupt or a cron job ends the
// hold. A call that waits sends two commands more than Exclusive, and every run one more. For tasks
// use asynqmw.Latest, under which older tasks complete without a wait.
func Latest(ctx context.Context, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) (ran bool, err error) {
	if locks == nil || fn == nil {
		return false, errtext.Prefix("guard: Latest: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if err := t.Validate(); err != nil {
		return false, errtext.Wrap(lockcore.ErrNotRun, errtext.Prefix("guard: Latest", err))
	}
	hidden := access.Of(locks)
	if hidden.NoTriggers != nil {
		return false, hidden.NoTriggers
	}
	// began is not before the begin of this call, by the backend's clock; 0: the call has not waited.
	// No run that began before it counts, also if the clock is set back, because the number of a
	// success only grows.
	var began int64
	run := func(t lockcore.Terms) error {
		return runHolding(ctx, "Latest", locks, key, lockcore.Limit{}, t, func(ctx context.Context) error {
			if began > 0 {
				last, _, err := hidden.LastSuccess(ctx, key)
				if err != nil {
					return err
				}
				if last > began { //planted:latest-is-covered
					access.SkipMinHold(ctx)
					return nil
				}
			}
			ran = true
			err := fn(ctx)
			if h, held := access.HoldOf(ctx, key); err == nil && held {
				_ = hidden.RecordHold(context.WithoutCancel(ctx), key, h.Token) // if it fails, more calls run
			}
			return err
		})
	}
	once := t
	once.Wait = lockcore.NoWait
	err = run(once)
	busy := errors.Is(err, lockcore.ErrBusy)
	if ran || !busy && !errors.Is(err, lockcore.ErrUnavailable) || cmp.Or(t.Wait, locks.Terms().Wait) == lockcore.NoWait {
		return ran, err
	}
	if busy {
		last, now, err := hidden.LastSuccess(ctx, key)
		if err != nil {
			return false, err
		}
		began = max(now, last)
	}
	err = run(t)
	return ran, err
}
