package asynqmw

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/parking"
)

// Configure returns a copy of cfg with four fields changed for the middlewares of this package. For
// all other errors the functions that cfg had before are called, or asynq's defaults if they were
// nil. Call it after all other fields are set. [ConfigureParking] also parks tasks.
//
//   - IsFailure returns false for a busy key, so that the conflict uses up no retry.
//   - RetryDelayFunc returns lockcore.BusyError.RetryAfter for a busy key: 1 s to 1 min, ± 25 %. If a
//     pause or a rate keeps the task waiting, it returns up to 25 % more instead, at most 10 s. During
//     a pause RetryAfter counts for at most 1 min, so a pause that is ended early is noticed.
//     asynq looks for due tasks every DelayedTaskCheckInterval (5 s), so the delay is only that
//     exact. [Parking] describes the delay of a parked task.
//   - An error of guard.Paused uses up no retry, and the task comes back after the pause.
//   - ErrorHandler is not called for a busy key, and after guard.Paused, if the task is tried again or dropped.
//   - BaseContext carries a mark. If a middleware with [RetryLater] or [Drop] does not find it, the
//     Observer gets event.Misconfigured, once for each middleware.
//
// A task that [Latest] postpones is treated like a busy key, with its own delay.
//
// If the handler itself got a *lockcore.BusyError from package guard and returned it, that is a
// busy key too. Nothing changes for a conflict under [Fail]. On the last attempt asynq archives the
// task, and ErrorHandler is called. All other errors of the guards are failures and use up a retry,
// including lockcore.ErrUnavailable and lockcore.ErrClosed. After a *lockcore.AbandonedError of
// Once asynq archives the task, and ErrorHandler is called.
func Configure(cfg asynq.Config) asynq.Config { return configure(cfg, true) }

// ConfigureParking is [Configure] for a server whose tasks wait for busy keys outside of the
// workers, see [Parking]. It reads Concurrency, TaskCheckInterval and DelayedTaskCheckInterval of
// cfg. It panics if o is not valid.
func ConfigureParking(cfg asynq.Config, o Parking) asynq.Config {
	return configure(cfg, newServer(cfg, o))
}

// configure returns a copy of cfg whose BaseContext carries mark.
func configure(cfg asynq.Config, mark any) asynq.Config {
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
		_, later := postponedFor(err)
		return !busy && !later && isFailure(err) //planted:counted-as-failure
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if c, ok := errors.AsType[*conflict](err); ok && c.place != nil {
			return c.place.Delay
		}
		if d, later := postponedFor(err); later {
			return d
		}
		if b, busy := busyIn(err); busy {
			return parking.RetryAfter(b)
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

// configured reports whether the server of a task was configured with Configure. It returns true
// for a task without a server, such as one in a test.
func configured(ctx context.Context) bool {
	_, onServer := asynq.GetTaskID(ctx)
	return !onServer || ctx.Value(configuredKey{}) != nil
}

// postponedFor returns the time after which a task comes back that Latest has postponed, or whose
// handler was refused for a time, see guard.Paused.
func postponedFor(err error) (d time.Duration, ok bool) {
	if p, ok := errors.AsType[*postponed](err); ok {
		return p.delay, true
	}
	if p, ok := errors.AsType[*guard.PausedError](err); ok {
		return p.For, true
	}
	return 0, false
}

// harmless reports whether err is a conflict or a postponement after which the task is tried again, or
// was dropped under Drop.
func harmless(ctx context.Context, err error) bool {
	_, busy := busyIn(err)
	_, later := postponedFor(err)
	return (busy || later) && (errors.Is(err, asynq.RevokeTask) || !lastAttempt(ctx))
}
