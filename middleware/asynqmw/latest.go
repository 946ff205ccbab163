package asynqmw

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// LatestOptions are the options of [Latest]. With the zero value a task runs as soon as no other task
// of its key does.
type LatestOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait ends before the task's
	// deadline, see [ConflictPolicy]. With [Parking] tasks of a busy key are parked.
	Terms lockcore.Terms
	// Delay postpones a task until this time after its first delivery. Then it runs, if no newer
	// one was delivered meanwhile. asynq looks for postponed tasks every DelayedTaskCheckInterval
	// (5 s). A task on its last attempt is not postponed, because asynq would archive it. 1 s to
	// 24 h. Default: 0, not postponed.
	Delay time.Duration
	// MaxDelay is the longest time for which tasks are postponed, counted from the first one that no
	// success covers. It needs Delay, and is at least as long, up to 24 h. Default: 10 times Delay, at
	// most 24 h.
	MaxDelay time.Duration
	// Interrupt ends a hold of the key that began before a newer task was delivered: its ctx is
	// canceled with lockcore.ErrReplaced, also that of an [Exclusive]. The newer task runs when that
	// handler has returned, or at the end of its lease. If tasks come faster than a run takes, no run
	// is completed. A nested Once with guard.AtMostOnce is abandoned. Default: false.
	Interrupt bool
}

const (
	leastDelay = time.Second
	maxDelay   = 24 * time.Hour
)

// Validate reports every problem of o at once.
func (o LatestOptions) Validate() error {
	errs := []error{o.Terms.Validate()}
	if o.Delay != 0 && (o.Delay < leastDelay || o.Delay > maxDelay) {
		errs = append(errs, fmt.Errorf("asynqmw: LatestOptions.Delay is %v, must be 0 or between %v and %v", o.Delay, leastDelay, maxDelay))
	}
	switch least := max(o.Delay, leastDelay); {
	case o.MaxDelay != 0 && o.Delay == 0:
		errs = append(errs, fmt.Errorf("asynqmw: LatestOptions.MaxDelay is %v, must be 0 without Delay", o.MaxDelay))
	case o.MaxDelay != 0 && (o.MaxDelay < least || o.MaxDelay > maxDelay):
		errs = append(errs, fmt.Errorf("asynqmw: LatestOptions.MaxDelay is %v, must be 0 or between %v (Delay) and %v", o.MaxDelay, least, maxDelay))
	}
	return errtext.Join(errs...)
}

// Latest returns a middleware for tasks with different IDs, under which one task of a key runs, the
// newest one waits, and older ones complete without a run. It is for work that reads the state,
// such as "rebuild the index of account 42": one run covers all changes before it. With one
// asynq.TaskID or asynq.Unique for a key, asynq refuses the task that arrives during a run, and its
// change is lost.
//
//   - After the last task of a key was delivered, a run begins, even if workers are killed.
//   - No task runs after the success of a newer one is recorded.
//
// What happens to a task:
//
//   - No newer one was delivered: it runs. If the key is busy, it waits or is parked as under
//     [Exclusive] with [RetryLater].
//   - A newer one was delivered: this task ends without a run. asynq gets nil, and the Observer
//     gets event.Replaced. Retention and Unique apply as after a success. So put Latest outside of
//     [Once], which would record that.
//   - Its run fails, or its worker is killed: asynq retries the task, and the rules above apply.
//   - Its run is ended by o.Interrupt, and returns an error: the rules above apply at once, and no
//     retry is used up.
//   - Its last attempt fails, or its worker is killed during that: asynq archives the task. The
//     Observer gets event.Misconfigured for a task with MaxRetry(0).
//   - With o.Delay the task is postponed until o.Delay after its own first delivery, at most until
//     o.MaxDelay after the first task that no success covers. Then it runs, if no newer one was
//     delivered. With [Configure] that uses up no retry.
//
// The order is that of the first deliveries, by the clock of Redis. A task that has ended is
// remembered for an hour, and one that has not for 100 days. If asynq delivers an ended task again
// although it was not retried, it counts as a new task after a minute. Of more than 10,000 tasks of a
// key that have not ended, the oldest are forgotten. A task that is deleted by hand loses the work of
// the older ones. A task must not have an asynq.Group, because asynq moves it to that group when it
// is due again. With Parking such a task is archived with an error instead.
//
// Latest panics if locks or key is nil, or if o is not valid. Tasks of a Locker of
// lockcore.NewQuorum fail with lockcore.ErrUnsupported.
func Latest(locks *lockcore.Locker, key KeyFunc, o LatestOptions) asynq.MiddlewareFunc {
	l := &latestGuard{decorator: newDecorator("Latest", locks, "key", key.keys(), o.Validate(), o.Terms, RetryLater), o: o}
	if o.MaxDelay == 0 {
		l.o.MaxDelay = min(10*o.Delay, maxDelay)
	}
	return l.middleware(l.process)
}

type latestGuard struct {
	*decorator

	o       LatestOptions
	noRetry sync.Once // reports MaxRetry(0)
}

// process runs, postpones or ends a task.
func (l *latestGuard) process(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	ctx, keys, terms, err := l.begin(ctx, t, nil)
	switch {
	case errors.Is(err, guard.Unguarded):
		return next.ProcessTask(ctx, t)
	case err != nil:
		return err
	}
	if most, ok := asynq.GetMaxRetry(ctx); ok && most == 0 {
		l.noRetry.Do(func() {
			access.Of(l.locks).Report(ctx, event.Misconfigured{Problem: fmt.Sprintf(
				"asynqmw: a task of type %q has MaxRetry(0): if its worker is killed, asynq archives it, and Latest loses its change", t.Type())})
		})
	}
	key := keys[0].Key.String()
	v := l.parkable(ctx, event.KindExclusive, keys, []string{key}, terms)
	if v.RanAlready(ctx) {
		return nil
	}
	x := &trigger{latestGuard: l, hidden: access.Of(l.locks), key: key, terms: terms, place: v, last: lastAttempt(ctx), entry: entryOf(ctx, v), task: ctx}
	for {
		if answer, again := x.deliver(ctx, t, next); !again {
			return answer
		}
	}
}

// entryOf returns the text that names a task in the backend: of a parked entry, if tasks are parked.
// A task without a server is another one in each call.
func entryOf(ctx context.Context, v *parking.Delivery) string {
	if v != nil {
		return v.Entry()
	}
	id, ok := asynq.GetTaskID(ctx)
	if !ok {
		id = rand.Text()
	}
	queue, _ := asynq.GetQueueName(ctx)
	return "/" + taskName(queue, id)
}

// errReplaced says that a newer task was delivered.
var errReplaced = errors.New("asynqmw: replaced by a newer task")

// postponed is the error that asynq gets for a task that comes back after a delay.
type postponed struct {
	delay time.Duration
	why   string
}

func (p *postponed) Error() string {
	return fmt.Sprintf("asynqmw: postponed for %v: %s", p.delay, p.why)
}

// Is makes it match lockcore.ErrNotRun.
func (*postponed) Is(target error) bool { return target == lockcore.ErrNotRun }

// ErrorType returns the class of the error for telemetry.
func (*postponed) ErrorType() string { return "postponed" }

// IsFailure reports whether asynq counts it as a failure. Telemetry uses it too.
func (*postponed) IsFailure() bool { return false }

// trigger is a delivery of a task.
//
// The task asks trigger.lua whether it is the newest (note) after it has found the key busy, and
// again while it holds the key, because a newer one may have been delivered meanwhile. Until it
// releases the key no other success is recorded. So these races have one winner each:
//
//   - Two tasks are delivered at the same time: the one whose note comes first has the smaller number.
//     If it already has the key, it runs, and the other one runs afterwards. Otherwise it completes.
//   - A newer task is delivered while this one runs: both run, the newer one afterwards. Interrupt only
//     ends holds whose token is smaller than the number of the newer task.
//   - The worker dies between the record of the success and asynq's: the task has ended, and completes
//     when asynq delivers it again.
//   - asynq has given up on the task, and delivers it again: the trigger does not end with this
//     delivery. It is old when it comes, because its success covers it.
type trigger struct {
	*latestGuard

	hidden access.Locker
	key    string
	terms  lockcore.Terms
	place  *parking.Delivery
	last   bool
	entry  string
	task   context.Context //nolint:containedctx // of the task: it ends when asynq gives up on the delivery

	number int64 // 0: not noted
	asked  bool  // the key was found busy, and the note says that the task is the newest
}

// deliver returns what asynq gets, or again if the task must try once more in this delivery.
func (x *trigger) deliver(ctx context.Context, t *asynq.Task, next asynq.Handler) (answer error, again bool) {
	x.number, x.asked = 0, false
	var cause error // why the hold ended before the handler returned
	var ran bool
	var at *parking.Place
	err := x.early(ctx)
	if err == nil {
		ran, at, err = x.place.Run(ctx, x.terms, func(terms lockcore.Terms) (bool, error) {
			return x.acquire(ctx, terms, func(ctx context.Context) error {
				defer x.place.Begin(ctx)()
				answer = next.ProcessTask(ctx, t)
				if cause = context.Cause(ctx); answer == nil {
					x.done(ctx)
				}
				return answer
			})
		})
	}
	if ran && answer != nil && errors.Is(cause, lockcore.ErrReplaced) && x.task.Err() == nil {
		// If the task is still the newest, an older one or a cron job has ended its hold by mistake.
		if err = x.note(ctx); err == nil {
			return nil, true
		}
		ran = false
	}
	if ran {
		return answered(answer, err), false
	}
	p, wait := errors.AsType[*postponed](err)
	switch {
	case errors.Is(err, errReplaced):
		x.hidden.Report(ctx, event.Replaced{Name: x.terms.Name, Key: x.key})
		return nil, false
	case wait && x.last: // asynq would archive it
		return guard.NoEffect(err), sleep(ctx, p.delay)
	case wait:
		if refused := x.place.Refused(); refused != nil {
			return x.refused(ctx, x.terms.Name, nil, refused), false
		}
		p.delay = max(x.place.Before(ctx, p.delay), time.Second)
		return guard.NoEffect(p), false
	}
	return x.refused(ctx, x.terms.Name, at, err), false
}

// early postpones a task with Delay before it requests its key. It is noted again under the key.
func (x *trigger) early(ctx context.Context) error {
	if x.o.Delay == 0 || x.last {
		return nil
	}
	return x.note(ctx)
}

// acquire runs the task while it holds the key, if it is the newest.
func (x *trigger) acquire(ctx context.Context, terms lockcore.Terms, run func(context.Context) error) (ran bool, err error) {
	try := func(wait time.Duration) error {
		terms.Wait = wait
		var old error
		err := guard.Exclusive(ctx, x.locks, x.key, terms, func(ctx context.Context) error {
			if old = x.note(ctx); old != nil { //planted:noted-under-the-key
				access.SkipMinHold(ctx)
				return nil //nolint:nilerr // the hold has not failed
			}
			ran = true
			return run(ctx)
		})
		return cmp.Or(old, err)
	}
	wait := terms.Wait
	if !x.asked {
		err = try(lockcore.NoWait)
		busy := errors.Is(err, lockcore.ErrBusy)
		if ran || !busy && !errors.Is(err, lockcore.ErrUnavailable) {
			return ran, err
		}
		if busy {
			if err := x.ask(ctx); err != nil {
				return false, err
			}
		}
		if wait == lockcore.NoWait {
			return false, err
		}
	}
	err = try(wait)
	if !ran && x.last && errors.Is(err, lockcore.ErrBusy) { // asynq archives the newest one only
		err = cmp.Or(x.note(ctx), err)
	}
	return ran, err
}

// ask asks whether the task is the newest when its key is busy. Then it ends older tasks: those that
// are parked, and with Interrupt the one that has the key.
func (x *trigger) ask(ctx context.Context) error {
	x.asked = true
	if x.number == 0 {
		if err := x.note(ctx); err != nil {
			return err
		}
	}
	if x.o.Interrupt {
		_ = x.hidden.Replace(ctx, x.key, x.number) // if it fails, the task only waits longer
	}
	return nil
}

// note returns nil if the task is the newest, errReplaced if a newer one was delivered, a *postponed,
// or an error of the backend.
func (x *trigger) note(ctx context.Context) error {
	retried, _ := asynq.GetRetryCount(ctx)
	r, err := x.hidden.NoteTrigger(ctx, x.key, x.entry, retried == 0)
	switch {
	case err != nil:
		return err
	case r.Again > 0:
		return &postponed{r.Again, "a task with this ID has just ended"}
	case !r.Newest:
		if r.Number > 0 && x.task.Err() == nil { // else asynq delivers it again
			_ = x.hidden.EndTrigger(ctx, x.key, x.entry, r.Number) // if it fails, the trigger is kept for longer
		}
		return errReplaced
	}
	x.number = r.Number
	if r.Older > 0 {
		x.place.WakeOthers(r.Older)
	}
	due := min(r.Number+x.o.Delay.Microseconds(), r.First+x.o.MaxDelay.Microseconds())
	// If the clock was set back, numbers are ahead of it.
	if d := min(time.Duration(due-r.Now)*time.Microsecond, x.o.Delay); d > 0 && !x.last {
		return &postponed{d, "no newer task may come meanwhile"}
	}
	return nil
}

// done records the success of the run. If that fails, newer tasks run as usual, and older ones are
// still old.
func (x *trigger) done(ctx context.Context) {
	if _, held := access.HoldOf(ctx, x.key); !held {
		return
	}
	_ = x.hidden.RecordSuccess(context.WithoutCancel(ctx), x.key, x.entry, x.number, x.task.Err() == nil)
}

// sleep sleeps for d. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
