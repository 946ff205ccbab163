package cronmw

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	retryAfter = time.Second     // before the next request while Redis is unavailable
	takeover   = 3 * time.Second // the overlap key of a dead instance may expire this much later than its tick
)

// singleton is a job on one instance. AddTo and Jobs share it.
type singleton struct {
	plan
	locks  *lockcore.Locker
	name   string
	job    Job // completed
	fn     func(context.Context, Tick) error
	now    func() time.Time
	cancel bool // Options.CancelOnStop
	offset offset
}

func newSingleton(locks *lockcore.Locker, name string, j Job, fn func(context.Context, Tick) error) (*singleton, error) {
	errs := []error{checkName(name), j.Validate()}
	if locks == nil || fn == nil {
		errs = append(errs, errors.New("cronmw: locks and fn must not be nil"))
	}
	if locks != nil {
		j = j.completed(name, locks.Terms())
		if err := access.Of(locks).NoRecords; err != nil { // otherwise each tick would fail
			errs = append(errs, errtext.Prefix("cronmw: a tick is recorded", err))
		}
	}
	return &singleton{locks: locks, name: name, job: j, fn: fn, now: time.Now}, errtext.Join(errs...)
}

// lateness returns how late the tick may be granted.
func (s *singleton) lateness(at time.Time) time.Duration {
	if s.job.CatchUp == CatchUpNone {
		return s.job.MaxLateness
	}
	return min(max(s.job.MaxLateness, s.gap(at)), maxKeep-defaultSlack)
}

// patience returns how long a tick waits for the overlap key of an earlier run of the same tick.
func (s *singleton) patience() time.Duration { return s.job.Terms.Lease + takeover }

// tick claims one tick on this instance, runs it if it is granted, and reports the result. The end
// of ctx ends all waits.
func (s *singleton) tick(ctx context.Context, at time.Time) Result {
	t := Tick{
		Name: s.name,
		Time: at.Round(0).In(s.zone), //planted:tick-time
	}
	e := &tickRun{singleton: s, Result: Result{Tick: t}, until: at.Add(min(s.lateness(t.Time), s.gap(t.Time)))}
	r := e.do(lockcore.WithTask(ctx, t.String()))
	if s.job.OnResult != nil {
		s.job.OnResult(r)
	}
	return r
}

// tickRun claims a tick on this instance until the outcome is known.
type tickRun struct {
	*singleton
	Result           // of the last claim
	until  time.Time // end of retries while Redis is unavailable: the tick is too late then, or the next one is due
	unused int64     // token of a hold under which fn was not called, and whose release may not have reached Redis
	unsure time.Time // when a claim that Redis may have granted ended without a reply
	waited bool      // do has waited for the tick's time
}

func (e *tickRun) do(ctx context.Context) Result {
	for {
		if e.settled(ctx) {
			e.try(ctx)
		}
		if in, again := e.again(ctx); !again || !sleep(ctx, in, nil) {
			break
		}
	}
	if e.Outcome == Elsewhere {
		e.Err = nil
	}
	return e.Result
}

// try claims the tick without waiting for another instance. With Standby it then waits, but only if
// another instance has the tick. If it waited at once, the ticks of an outage would all wait for
// the end of the outage.
func (e *tickRun) try(ctx context.Context) {
	e.claim(ctx, lockcore.NoWait, time.Time{})
	if busy, ok := errors.AsType[*lockcore.BusyError](e.Err); ok && e.Outcome == Elsewhere && e.job.Standby {
		e.claim(ctx, lockcore.Forever, time.Now().Add(-busy.HeldFor))
		if errors.Is(e.Err, lockcore.ErrClosed) && e.Outcome == NotRun { // Close ended the wait, and the other instance still has the tick
			e.Outcome = Elsewhere
		}
	}
}

// again returns whether to claim the tick again, and after which time.
func (e *tickRun) again(ctx context.Context) (time.Duration, bool) {
	busy, isBusy := errors.AsType[*lockcore.BusyError](e.Err)
	switch {
	case e.Outcome == NotRun:
		// Redis was unavailable before fn could begin.
		unavailable := errors.Is(e.Err, lockcore.ErrUnavailable) || errors.Is(e.Err, lockcore.ErrLost)
		return retryAfter, unavailable && e.now().Before(e.until)
	case e.Outcome != Elsewhere || !isBusy:
		return 0, false
	case time.Since(e.unsure) < e.patience() && busy.Holder.Locker == e.locks.ID():
		// This process has the tick: by an earlier claim that got no reply, or by another job of
		// the same name.
		return retryAfter, true
	case e.waited:
		return 0, false
	}
	early := e.early(ctx, e.Tick, busy)
	e.waited = early > 0
	return early + settling, early > 0
}

// settled reports whether the instance may claim the tick. It returns false while Redis has an
// earlier hold of this instance under which fn was not called. Such a hold remains if Redis became
// unavailable before its release. When its lease has ended, the hold is abandoned, and settled clears
// it. Otherwise the instance would take it for a run of the tick.
func (e *tickRun) settled(ctx context.Context) bool {
	if e.unused == 0 {
		return true
	}
	h, err := e.locks.Inspect(ctx, event.KindOnce, e.Tick.Key())
	switch {
	case err != nil, h.Token == e.unused && h.State == lockcore.StateHeld:
		return false
	case h.Token == e.unused && h.State == lockcore.StateAbandoned:
		if err := e.locks.ClearIfUnchanged(ctx, event.KindOnce, e.Tick.Key(), h); err != nil && !errors.Is(err, lockcore.ErrChanged) {
			return false
		}
	}
	e.unused = 0
	return true
}

// sleep sleeps for d. It returns false if ctx ends or stop is closed before. A nil stop is never
// closed.
func sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}
