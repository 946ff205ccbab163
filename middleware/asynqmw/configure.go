package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
)

// Configure returns cfg with what the middlewares need of the server, and keeps the user's own functions for all else.
// With a [Parking], tasks wait for busy keys outside of the workers, see "Parking" in the documentation of the package.
//
//	IsFailure        false for a busy key, so that no retry is used up
//	RetryDelayFunc   for a busy key what lockcore.BusyError.RetryAfter says, 1 s to 1 min, ± 25 %; asynq looks for due
//	                 tasks every DelayedTaskCheckInterval (5 s), so that is how exact it gets; for a parked task, see "Parking"
//	ErrorHandler     not called for a busy key that is tried again or dropped
//	BaseContext      carries a mark by which the middlewares know that Configure was not forgotten
//
// A *lockcore.BusyError that the handler itself got from package guard, and returned, counts as a busy key too. What is
// nil gets asynq's default. Nothing changes for a conflict under [Fail], or one that is left on the last attempt. All
// other errors of the guards count as failures and use up a retry: lockcore.ErrUnavailable, lockcore.ErrClosed and
// *lockcore.AbandonedError too.
//
// Parking reads Concurrency, TaskCheckInterval and DelayedTaskCheckInterval of cfg, so set them before the call.
// Configure panics on a Parking that [Parking.Validate] refuses, and on more than one Parking.
func Configure(cfg asynq.Config, o ...Parking) asynq.Config {
	var mark any = true
	switch len(o) {
	case 0:
	case 1:
		mark = newParking(cfg, o[0])
	default:
		panic(fmt.Sprintf("asynqmw: Configure: %d values of Parking, must be at most 1", len(o)))
	}
	isFailure, delay, base := cfg.IsFailure, cfg.RetryDelayFunc, cfg.BaseContext
	if isFailure == nil {
		isFailure = func(err error) bool { return err != nil }
	}
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	if base == nil {
		base = context.Background
	}
	cfg.IsFailure = func(err error) bool {
		_, busy := busyIn(err)
		return !busy && isFailure(err) //planted:counted-as-failure
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if c, ok := errors.AsType[*conflict](err); ok && c.place != nil {
			return c.place.delay
		}
		if b, busy := busyIn(err); busy {
			return jitter(b.RetryAfter())
		}
		return delay(n, err, t)
	}
	if h := cfg.ErrorHandler; h != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			if !harmless(ctx, err) {
				h.HandleError(ctx, t, err)
			}
		})
	}
	cfg.BaseContext = func() context.Context { return context.WithValue(base(), configuredKey{}, mark) }
	return cfg
}

type configuredKey struct{}

// configured says that a task does not come from a server that Configure has not seen. One in a test comes from none.
func configured(ctx context.Context) bool {
	_, onServer := asynq.GetTaskID(ctx)
	return !onServer || ctx.Value(configuredKey{}) != nil
}

// harmless says that err is a conflict that is tried again or was dropped by choice.
func harmless(ctx context.Context, err error) bool {
	_, busy := busyIn(err)
	return busy && (errors.Is(err, asynq.RevokeTask) || !lastAttempt(ctx))
}

// jitter spreads d by a quarter up and down, so that those who met at a key do not come back together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}
