package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	defaultTickRetention = time.Hour
	minTickRetention     = time.Minute
)

// EnqueueTick enqueues the task of one tick of a schedule. If several schedulers call it for the
// same tick, one of them enqueues the task. It returns nil if the task is enqueued, by this call or
// by another one. Use it with your own cron. [Ticks] contain a cron.
//
// at is the nominal time of the tick in the schedule, never time.Now(). It identifies the tick,
// also for schedulers that are late or whose clocks differ.
//
// The task gets asynq.TaskID(TickID(name, at)) and, unless opts has another retention,
// asynq.Retention(1 h). Both replace the task's own options.
//
//   - The retention must be longer than schedulers may be late and than their clocks may differ.
//     When asynq has deleted the completed task, a later call enqueues it again. The same happens
//     after a deletion by asynq.RevokeTask, [Drop] or an operator.
//   - An ID is unique only in its queue, so all schedulers must use the same queue.
//
// EnqueueTick returns an error if name is empty, at is zero, opts has a TaskID or a retention under
// 1 min, or asynq returns an error. One of these is asynq.ErrDuplicateTask, for a task with
// asynq.Unique. The task of an earlier tick then still has the uniqueness lock, and this tick is
// not enqueued.
func EnqueueTick(ctx context.Context, c *asynq.Client, name string, at time.Time, t *asynq.Task, opts ...asynq.Option) error {
	opts, err := tickOptions(name, at, opts)
	if err != nil {
		return fmt.Errorf("asynqmw: EnqueueTick: %w", err)
	}
	if _, err = c.EnqueueContext(ctx, t, opts...); errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return err
}

// TickID returns the task ID of a tick, for asynq's Inspector: TickID("report", at) is
// report@1767225600. Fractions of a second are cut off.
func TickID(name string, at time.Time) string { return name + "@" + strconv.FormatInt(at.Unix(), 10) }

// tickOptions returns the options of the task of a tick. The order matters, because asynq uses the
// last option of a type.
func tickOptions(name string, at time.Time, opts []asynq.Option) ([]asynq.Option, error) {
	errs := []error{checkTick(name, opts)}
	if at.IsZero() {
		errs = append(errs, errors.New("at must not be zero: it is the nominal time of the tick"))
	}
	all := append([]asynq.Option{asynq.Retention(defaultTickRetention)}, opts...)
	return append(all, asynq.TaskID(TickID(name, at))), errtext.Join(errs...)
}

// retention returns the retention of the task of a tick.
func retention(opts []asynq.Option) time.Duration {
	keep := defaultTickRetention
	for _, o := range opts {
		if d, ok := o.Value().(time.Duration); ok && o.Type() == asynq.RetentionOpt {
			keep = d
		}
	}
	return keep
}

func checkTick(name string, opts []asynq.Option) error {
	var errs []error
	if strings.TrimSpace(name) == "" {
		errs = append(errs, errors.New("name must not be empty"))
	}
	for _, o := range opts {
		switch o.Type() {
		case asynq.TaskIDOpt:
			errs = append(errs, fmt.Errorf("option %v must not be set: EnqueueTick sets the ID, which names the tick", o))
		case asynq.RetentionOpt:
			if d := retention([]asynq.Option{o}); d < minTickRetention {
				errs = append(errs, fmt.Errorf("option %v must be at least %v: with a shorter one a late scheduler enqueues the tick again", o, minTickRetention))
			}
		default:
		}
	}
	return errtext.Join(errs...)
}
