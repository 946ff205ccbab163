package guard

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Paused marks the error of a call that its resource has refused for a time, such as a 429 with
// Retry-After: no call of the key begins for d, in all processes. The innermost [Throttled], [Limited],
// [Shared] or [Exclusive] around the function that returns the error pauses its key, before it releases
// the key. [LimitedAll] nests calls of Limited, so it pauses the key that it acquires last. Under asynqmw
// with Configure the task then comes back after d, and uses up no retry. On its last attempt asynq
// archives it.
//
//	res, err := client.Do(req)
//	…
//	if d, ok := httpmw.RetryAfter(res); ok {
//		return guard.Paused(fmt.Errorf("partner: %s", res.Status), d)
//	}
//
// The key is paused for at most 24 h. If d is not positive or err is nil, Paused returns err. If Redis
// does not store the pause, the error is the same. See [lockcore.Locker.Pause].
func Paused(err error, d time.Duration) error {
	if err == nil || d <= 0 {
		return err
	}
	return &PausedError{Err: err, For: min(d, 24*time.Hour)}
}

// PausedError is an error that [Paused] has marked.
type PausedError struct {
	Err error
	For time.Duration // from the moment at which the function returned
}

func (e *PausedError) Error() string { return e.Err.Error() }

// Unwrap returns the error that was marked.
func (e *PausedError) Unwrap() error { return e.Err }

// hasPaused is an error for which a guard has paused its key, so that the guards around it do not. The
// PausedError itself is not changed, because the function may return it again, also for another key.
type hasPaused struct{ error }

func (e hasPaused) Unwrap() error { return e.error }

// pauseAfter pauses key if err is the result of a function that Paused has marked, and no guard inside
// has done so. It returns err for the guards around this one.
func pauseAfter(ctx context.Context, locks *lockcore.Locker, key string, err error) error {
	e, marked := errors.AsType[*PausedError](err)
	if _, done := errors.AsType[hasPaused](err); !marked || done {
		return err
	}
	_ = locks.Pause(context.WithoutCancel(ctx), key, max(e.For, time.Millisecond), "refused by the resource (guard.Paused)")
	return hasPaused{err}
}
