package cronmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// claim is one claim of a tick, its run and its result.
type claim struct {
	*singleton
	Result
	stopping <-chan struct{} // closed when Run's ctx ends, which ends the waits before fn
	begin    func() bool     // called just before fn: returns false if fn must not begin; afterwards Run waits for fn
	since    time.Time       // start of the run whose end this claim has waited for; zero: it has not waited

	token    int64
	tookOver bool
	repeated bool   // the tick was granted before
	quiet    func() // ends the beats that keep the tick's key from being stalled
	cut      error  // why fn's ctx ended before fn returned
	number   int64  // of the tick's trigger, with Replace; 0: it found no earlier run
}

// claim claims the tick, and waits for it up to wait. The end of ctx ends every wait, but not a
// request that is under way: if Redis grants the tick at once, fn runs. If claim withdrew the
// request, the tick might not run at all: the other instances may have found it held, and do not
// request it again. Only with CancelOnStop, which ends fn's ctx too, the request is withdrawn.
func (e *tickRun) claim(ctx context.Context, wait time.Duration, since time.Time) {
	if ctx.Err() != nil {
		e.Outcome, e.Err = NotRun, errtext.Wrap(lockcore.ErrNotRun, context.Cause(ctx))
		return
	}
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := func() bool { return true }
	if wait != lockcore.NoWait || e.cancel { //planted:claim-withdrawn
		stop = context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		defer stop()
	}
	a := &claim{singleton: e.singleton, Result: Result{Tick: e.Tick}, stopping: ctx.Done(), since: since, begin: func() bool {
		if e.cancel {
			return ctx.Err() == nil
		}
		return stop()
	}}
	out, err := guard.Once(call, e.locks, e.Tick.Key(), e.once(e.Tick.Time, wait), a.run)
	switch {
	case a.ran() && a.Err == nil:
		a.Err = err // not nil if the lease ended early
	case a.ran() || a.Err != nil:
	case out == guard.Replayed, errors.Is(err, lockcore.ErrBusy):
		a.Outcome, a.Err = Elsewhere, err
	default:
		a.Err = err
	}
	if a.Outcome == NotRun && !a.tookOver {
		e.unused = a.token
	}
	if a.token == 0 && errors.Is(a.Err, lockcore.ErrUnavailable) {
		e.unsure = time.Now()
	}
	e.Result = a.Result
}

func (a *claim) ran() bool { return a.Outcome == Ran || a.Outcome == TookOver }

// run is called when the instance has the tick. With nil or an error of guard.Final the tick is
// decided. With an error of guard.NoEffect other instances may claim it.
func (a *claim) run(ctx context.Context) error {
	a.quiet = a.beat(ctx)
	defer a.quiet()
	h, held := access.HoldOf(ctx, a.Tick.Key())
	a.token, a.repeated, a.tookOver = h.Token, h.Attempt > 1, h.TookOver
	late := h.GrantedAt.Sub(a.Tick.Time)
	switch {
	case !held: // the lease has ended, but its timer may not have fired yet: then ctx has no cause
		return a.refuse(NotRun, cmp.Or(context.Cause(ctx), lockcore.ErrLost))
	case a.late(h.GrantedAt):
		return a.refuse(Late, &LateError{By: late, Max: a.lateness(a.Tick.Time)})
	case late < -maxEarly:
		return a.refuse(Early, &EarlyError{By: -late})
	case late < 0 && !a.sleep(ctx, -late):
		return a.refuse(NotRun, a.ended(ctx))
	}
	a.reportAbandoned(ctx)
	if a.job.Overlap == Allow {
		return a.allowed(ctx)
	}
	err := a.alone(ctx)
	switch {
	case a.ran():
		return a.decide(err)
	case a.Err != nil:
		return guard.NoEffect(a.Err)
	case errors.Is(err, lockcore.ErrBusy) && ctx.Err() == nil:
		a.Outcome, a.Err = Skipped, err
		return guard.Final(fmt.Errorf("%s%w", skippedText, err))
	default:
		return a.refuse(NotRun, err)
	}
}

// late reports whether a hold that was granted at granted is too late for fn to begin. A takeover
// is never too late. If the instance has waited for a run of the tick, the time at which that run
// began counts instead.
func (a *claim) late(granted time.Time) bool {
	by := granted.Sub(a.Tick.Time)
	if !a.since.IsZero() {
		by -= time.Since(a.since)
	}
	return by > a.lateness(a.Tick.Time) && !a.tookOver
}

// beat keeps the tick's key from being stalled until stop is called, before fn begins. Stall counts
// from the start of fn.
func (a *claim) beat(ctx context.Context) (stop func()) {
	stall := a.job.Terms.Stall
	if stall == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for sleep(ctx, stall/2, nil) {
			guard.Beat(ctx)
		}
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// alone calls fn under the overlap key.
func (a *claim) alone(ctx context.Context) error {
	terms := a.job.Terms
	terms.Wait = lockcore.NoWait
	var busy error // of the last request
	for began := time.Now(); ; {
		newest, noted := true, error(nil)
		err := guard.Exclusive(ctx, a.locks, a.Tick.OverlapKey(), terms, func(ctx context.Context) error {
			if a.number > 0 {
				if newest, noted = a.newest(ctx); noted != nil || !newest {
					access.SkipMinHold(ctx)
					return noted
				}
			}
			return a.call(ctx)
		})
		if !newest && noted == nil {
			return busy
		}
		busy = err
		in := a.retryOverlap(ctx, err, time.Since(began))
		if in == 0 {
			a.endTrigger(ctx)
			return err
		}
		if !a.sleep(ctx, in) {
			return a.ended(ctx)
		}
	}
}

// sleep sleeps for d. It returns false if the hold's ctx or a.stopping ends before.
func (a *claim) sleep(ctx context.Context, d time.Duration) bool {
	return sleep(ctx, d, a.stopping)
}

// ended returns why sleep returned false.
func (a *claim) ended(ctx context.Context) error {
	return cmp.Or(context.Cause(ctx), context.Canceled)
}

// retryOverlap returns the time after which alone requests the overlap key again; 0: not again. If
// a run of another tick holds the key, that decides this tick: it is skipped. But alone waits for a
// run of the same tick. That run may have died, may have been cut short, or its release may not
// have reached Redis.
func (a *claim) retryOverlap(ctx context.Context, err error, waited time.Duration) time.Duration {
	busy, isBusy := errors.AsType[*lockcore.BusyError](err)
	switch {
	case a.ran() || a.Err != nil:
	case isBusy && busy.Holder == event.Holder{} && a.repeated: // MinHold keeps the key after a run of this tick
		return min(busy.Remaining+settling, lookAgain)
	case waited > a.patience():
	case isBusy && (a.tookOver || busy.Holder.Task != "" && strings.HasPrefix(a.Tick.String(), busy.Holder.Task)): // lockcore cuts a long Task
		return min(busy.Remaining+settling, retryAfter)
	case isBusy && a.job.Overlap == Replace && busy.Holder != event.Holder{} && a.replace(ctx, busy.Holder.Task):
		return retryAfter
	}
	return 0
}

// replace ends the run of an earlier tick, whose task is given. It returns false if this tick does not
// replace it: it takes over, was granted before, or is not newer. Then its hold of the tick may be
// newer than that of a newer tick.
//
// The first replace gives the tick a number. A tick that waits asks under the overlap key whether it is
// the newest one that waits. So of several ticks that wait, an older one that gets the key first does
// not run. The revocation ends only a hold that began before the number. So it never ends that of a
// newer tick.
func (a *claim) replace(ctx context.Context, earlier string) bool {
	if a.tookOver || a.repeated || earlier >= a.Tick.String() {
		return false
	}
	newest, err := a.newest(ctx)
	if newest {
		_ = access.Of(a.locks).Replace(ctx, a.Tick.OverlapKey(), a.number) // the next try repeats it
	}
	return newest || err != nil
}

// newest notes the tick among those that wait for the overlap key. It returns false if a newer one
// waits.
func (a *claim) newest(ctx context.Context) (bool, error) {
	r, err := access.Of(a.locks).NoteTrigger(ctx, a.Tick.OverlapKey(), a.trigger(), false)
	switch {
	case err != nil:
		return false, err
	case r.Newest:
		a.number = r.Number
		return true, nil
	}
	a.endTrigger(ctx)
	return false, nil
}

// endTrigger ends the tick's trigger, if it has one.
func (a *claim) endTrigger(ctx context.Context) {
	if a.number > 0 { // if it fails, the trigger is kept for longer
		_ = access.Of(a.locks).EndTrigger(context.WithoutCancel(ctx), a.Tick.OverlapKey(), a.trigger(), a.number)
	}
}

// trigger returns the text that names the tick's trigger in the backend.
func (a *claim) trigger() string { return "/" + a.Tick.String() }

// allowed calls fn under Allow. There is no overlap key, so allowed itself ends fn's ctx after
// MaxHold.
func (a *claim) allowed(ctx context.Context) error {
	if d := a.job.Terms.MaxHold; d != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, lockcore.ErrMaxHold)
		defer cancel()
	}
	err := a.call(ctx)
	switch {
	case !a.ran():
		return guard.NoEffect(a.Err)
	case err == nil && errors.Is(a.cut, lockcore.ErrMaxHold):
		err = a.cut
	}
	return a.decide(err)
}

// refuse sets the result, and returns the error with which other instances may claim the tick.
func (a *claim) refuse(o Outcome, err error) error {
	if !errors.Is(err, lockcore.ErrNotRun) {
		err = errtext.Wrap(lockcore.ErrNotRun, err)
	}
	a.Outcome, a.Err = o, err
	return guard.NoEffect(err)
}

// call calls fn. A panic becomes an error, so that the tick is recorded as failed. Otherwise each
// instance would run it and panic.
func (a *claim) call(ctx context.Context) (err error) {
	if h, held := access.HoldOf(ctx, a.Tick.OverlapKey()); held && a.late(h.GrantedAt) { // it waited too long for the overlap key
		return a.refuse(Late, &LateError{By: h.GrantedAt.Sub(a.Tick.Time), Max: a.lateness(a.Tick.Time)})
	}
	if !a.begin() {
		return a.refuse(NotRun, context.Canceled)
	}
	a.quiet()
	guard.Beat(ctx)
	a.Outcome = Ran
	if a.tookOver {
		a.Outcome = TookOver
	}
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
			a.panicked = true
		}
		a.Err, a.cut = err, context.Cause(ctx)
	}()
	return a.fn(ctx, a.Tick)
}

// failed reports whether a run that cause ended is a failure of the job. Another instance would
// fail in the same way.
func failed(cause error) bool {
	return errors.Is(cause, lockcore.ErrMaxHold) || errors.Is(cause, lockcore.ErrStalled) || errors.Is(cause, lockcore.ErrRevoked) ||
		errors.Is(cause, lockcore.ErrReplaced)
}

// because returns err. If err is the error of a ctx, because adds why fn's lease, or under Allow
// its MaxHold, ended.
func (a *claim) because(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, a.cut) {
		return err
	}
	for _, cause := range []error{lockcore.ErrLost, lockcore.ErrMaxHold, lockcore.ErrStalled, lockcore.ErrRevoked, lockcore.ErrReplaced, lockcore.ErrGivenUp} {
		if errors.Is(a.cut, cause) {
			return errtext.Wrap(cause, err)
		}
	}
	return err
}

// decide returns the error for guard.Once, which decides what is recorded of a run. err is the
// error of fn, or why the overlap key was lost. A failure is the outcome of the tick, and no
// instance runs it again. A run that was cut short from outside is not a failure of the job. A
// standby takes it over, like the run of an instance that died.
func (a *claim) decide(err error) error {
	own := a.Err
	a.Err = a.because(err)
	switch {
	case own == nil: // the work is done
		return nil
	case a.job.Standby && a.cut != nil && !failed(a.cut):
		return guard.Unknown(own)
	default:
		return guard.Final(own)
	}
}
