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

// EnqueueTick enqueues the task of one tick of a schedule, for schedulers of which several run at the same time: whoever
// comes first enqueues it, and nil means that it is enqueued, by this call or by another. It is for a cron of your own;
// [Ticks] have one.
//
// at is the nominal time of the tick, as the schedule has it, never time.Now(): it names the tick, by which late
// schedulers and those whose clocks differ know each other's. The task gets asynq.TaskID(TickID(name, at)) and, unless
// opts has another, asynq.Retention(1 h), both in place of those of the task itself. The retention must be longer than
// schedulers may be late or their clocks apart, for a completed task that asynq has forgotten is enqueued again; so is one
// that was deleted, by asynq.RevokeTask, [Drop] or an operator. IDs are unique in their queue only: all schedulers must
// use the same one.
//
// It is an error if name is empty, at is zero, opts has a TaskID or a retention under 1 min, or asynq refuses the task.
// asynq.ErrDuplicateTask, for a task with asynq.Unique, is one too: the task of an earlier tick is in the way, and this
// tick has none.
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

// TickID is the task ID of a tick, for asynq's Inspector: TickID("report", at) is report@1767225600. Fractions of a
// second are cut off.
func TickID(name string, at time.Time) string { return name + "@" + strconv.FormatInt(at.Unix(), 10) }

// tickOptions are the options of the task of a tick; asynq obeys the last one of a type.
func tickOptions(name string, at time.Time, opts []asynq.Option) ([]asynq.Option, error) {
	errs := []error{checkTick(name, opts)}
	if at.IsZero() {
		errs = append(errs, errors.New("at must be the nominal time of the tick, is zero"))
	}
	all := append([]asynq.Option{asynq.Retention(defaultTickRetention)}, opts...)
	return append(all, asynq.TaskID(TickID(name, at))), errtext.Join(errs...)
}

// retention is that of the task of a tick.
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
			errs = append(errs, fmt.Errorf("%v: the ID of the task names the tick", o))
		case asynq.RetentionOpt:
			if d := retention([]asynq.Option{o}); d < minTickRetention {
				errs = append(errs, fmt.Errorf("%v is too short, must be at least %v: a scheduler that is late would enqueue the tick again", o, minTickRetention))
			}
		default:
		}
	}
	return errtext.Join(errs...)
}
