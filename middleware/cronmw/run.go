package cronmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	askAgain = time.Second     // while Redis is away
	takeover = 3 * time.Second // by which the overlap key of a dead instance may outlive its tick
)

// singleton is a job as it runs: what AddTo and Jobs share.
type singleton struct {
	plan
	locks  *lockcore.Locker
	name   string
	job    Job
	fn     func(context.Context, Tick) error
	now    func() time.Time
	cancel bool // fn's ctx ends with that of Run
}

func newSingleton(locks *lockcore.Locker, name string, j Job, fn func(context.Context, Tick) error) (*singleton, error) {
	errs := []error{checkName(name), j.Validate()}
	if locks == nil || fn == nil {
		errs = append(errs, errors.New("cronmw: locks and fn must not be nil"))
	}
	j = j.withDefaults()
	if j.Terms.Name == "" {
		j.Terms.Name = name
	}
	return &singleton{locks: locks, name: name, job: j, fn: fn, now: time.Now}, errors.Join(errs...)
}

// lateness is by how much the tick may begin late.
func (s *singleton) lateness(at time.Time) time.Duration {
	if s.job.CatchUp == CatchUpNone {
		return s.job.MaxLateness
	}
	return min(max(s.job.MaxLateness, s.gap(at)), maxKeep-defaultSlack)
}

// tick does what is to be done for one tick on this instance, and reports it. Waiting ends with ctx.
func (s *singleton) tick(ctx context.Context, at time.Time) Result {
	t := Tick{Name: s.name, Time: at.Round(0).In(s.zone)}
	ctx = lockcore.WithTask(ctx, t.String())
	until := at.Add(min(s.lateness(t.Time), s.gap(t.Time))) // a newer tick is worth more than an old one that Redis was away for
	r := s.ask(ctx, t)
	for errors.Is(r.Err, lockcore.ErrUnavailable) && r.Outcome == NotRun && s.now().Before(until) && sleep(ctx, askAgain) {
		r = s.ask(ctx, t)
	}
	if s.job.OnResult != nil {
		s.job.OnResult(r)
	}
	return r
}

// ask does not wait for another instance; a standby does, but only once it is known that there is one: else all ticks
// of an outage would wait for its end.
func (s *singleton) ask(ctx context.Context, t Tick) Result {
	r := s.claim(ctx, t, lockcore.NoWait)
	if s.job.Standby && r.Outcome == Elsewhere && errors.Is(r.Err, lockcore.ErrBusy) {
		r = s.claim(ctx, t, lockcore.Forever)
	}
	if r.Outcome == Elsewhere {
		r.Err = nil
	}
	return r
}

// attempt is one claim of a tick and what comes of it.
type attempt struct {
	*singleton
	Result
	begin func() bool // fn may begin: from now on Run waits for it
	cut   error       // why fn's ctx ended before fn
}

func (s *singleton) claim(ctx context.Context, t Tick, wait time.Duration) Result {
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	a := &attempt{singleton: s, Result: Result{Tick: t}, begin: func() bool {
		if s.cancel {
			return ctx.Err() == nil
		}
		return stop()
	}}
	out, err := guard.Once(call, s.locks, t.Key(), s.job.once(s.lateness(t.Time), wait), a.run)
	switch {
	case a.ran() && a.Err == nil:
		a.Err = err // the lease ended early
	case a.ran() || a.Err != nil:
	case out == guard.Replayed, errors.Is(err, lockcore.ErrBusy):
		a.Outcome, a.Err = Elsewhere, err
	default:
		a.Err = err
	}
	return a.Result
}

func (a *attempt) ran() bool { return a.Outcome == Ran || a.Outcome == TookOver }

// run has the tick. What it returns says to guard.Once whether the tick is decided (nil and Final) or free for others.
func (a *attempt) run(ctx context.Context) error {
	at := a.Tick.Time
	token, held := guard.Token(ctx, a.Tick.Key())
	_, tookOver := guard.Attempt(ctx, a.Tick.Key())
	late := time.UnixMicro(token).Sub(at) // a token is the server's time at the grant
	switch {
	case !held:
		return a.refuse(NotRun, context.Cause(ctx))
	case late > a.lateness(at) && !tookOver:
		return a.refuse(Late, &LateError{By: late, Max: a.lateness(at)})
	case late < -maxEarly:
		return a.refuse(Early, &EarlyError{By: -late})
	case late < 0 && !a.untilDue(ctx, -late):
		return a.refuse(NotRun, context.Cause(ctx))
	}
	if a.job.Overlap == Allow {
		return a.allowed(ctx, tookOver)
	}
	terms := a.job.Terms
	terms.Wait = lockcore.NoWait
	if tookOver { // the instance that died had both keys, and this one may end a little later
		terms.Wait = a.lease() + takeover
	}
	err := guard.Exclusive(ctx, a.locks, a.Tick.OverlapKey(), terms, func(ctx context.Context) error { return a.call(ctx, tookOver) })
	switch {
	case a.ran():
		return a.decide(err)
	case a.Err != nil:
		return guard.NoEffect(a.Err)
	case errors.Is(err, lockcore.ErrBusy) && ctx.Err() == nil:
		a.Outcome, a.Err = Skipped, err
		return guard.Final(err)
	default:
		return a.refuse(NotRun, err)
	}
}

// untilDue waits for the tick's time. That is no stall.
func (a *attempt) untilDue(ctx context.Context, d time.Duration) bool {
	step := cmp.Or(cmp.Or(a.job.Terms.Stall, a.locks.Terms().Stall)/2, d)
	for ; d > 0; d -= step {
		if !sleep(ctx, min(step, d)) {
			return false
		}
		guard.Beat(ctx)
	}
	return true
}

func (a *attempt) lease() time.Duration {
	if d := a.job.Terms.Lease; d != 0 {
		return d
	}
	return a.locks.Terms().Lease
}

func (a *attempt) allowed(ctx context.Context, tookOver bool) error {
	if d := a.job.Terms.MaxHold; d != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, lockcore.ErrMaxHold)
		defer cancel()
	}
	err := a.call(ctx, tookOver)
	switch {
	case !a.ran():
		return guard.NoEffect(a.Err)
	case err == nil && errors.Is(a.cut, lockcore.ErrMaxHold):
		err = a.cut
	}
	return a.decide(err)
}

// refuse leaves the tick to others.
func (a *attempt) refuse(o Outcome, err error) error {
	if !errors.Is(err, lockcore.ErrNotRun) {
		err = fmt.Errorf("%w: %w", lockcore.ErrNotRun, err)
	}
	a.Outcome, a.Err = o, err
	return guard.NoEffect(err)
}

// call calls fn. A panic becomes an error, so that the tick is recorded as failed rather than tried by one instance after the other.
func (a *attempt) call(ctx context.Context, tookOver bool) (err error) {
	if !a.begin() {
		return a.refuse(NotRun, context.Canceled)
	}
	a.Outcome = Ran
	if tookOver {
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

// decide says what is recorded of a run that ended with err, its own or why the overlap key was lost: a failure is what the tick came to, and nobody runs it
// again. A run that was cut short from outside is not a failure of the job: a standby runs it again.
func (a *attempt) decide(err error) error {
	own := a.Err
	a.Err = err
	switch {
	case own == nil: // the work is done
		return nil
	case a.job.Standby && a.cut != nil && !errors.Is(a.cut, lockcore.ErrMaxHold) && !errors.Is(a.cut, lockcore.ErrRevoked):
		return own
	default:
		return guard.Final(own)
	}
}

// sleep returns false if ctx ends before.
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
