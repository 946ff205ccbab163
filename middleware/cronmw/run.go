package cronmw

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
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
	job    Job // with nothing left open in its Terms
	fn     func(context.Context, Tick) error
	now    func() time.Time
	cancel bool // fn's ctx ends with that of Run
	offset offset
}

func newSingleton(locks *lockcore.Locker, name string, j Job, fn func(context.Context, Tick) error) (*singleton, error) {
	errs := []error{checkName(name), j.Validate()}
	if locks == nil || fn == nil {
		errs = append(errs, errors.New("cronmw: locks and fn must not be nil"))
	}
	if locks != nil {
		errs = append(errs, checkLocker(locks.Terms()))
		j = j.completed(name, locks.Terms())
	}
	return &singleton{locks: locks, name: name, job: j, fn: fn, now: time.Now}, errtext.Join(errs...)
}

// lateness is by how much the tick may begin late.
func (s *singleton) lateness(at time.Time) time.Duration {
	if s.job.CatchUp == CatchUpNone {
		return s.job.MaxLateness
	}
	return min(max(s.job.MaxLateness, s.gap(at)), maxKeep-defaultSlack)
}

// patience is for how long a tick waits for the overlap key of a run of the same tick.
func (s *singleton) patience() time.Duration { return s.job.Terms.Lease + takeover }

// tick does what is to be done for one tick on this instance, and reports it. Waiting ends with ctx.
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

// tickRun is a tick on this instance. The instance asks for it until the outcome is known.
type tickRun struct {
	*singleton
	Result           // of the last time
	until  time.Time // a newer tick is worth more than an old one that Redis was away for
	unused int64     // token of a hold under which fn was not called, if Redis may not know that it has ended
	unsure time.Time // when a claim was given up that Redis may have granted
	waited bool      // for the tick's time
}

func (e *tickRun) do(ctx context.Context) Result {
	for {
		if e.settled(ctx) {
			e.ask(ctx)
		}
		if in, again := e.again(ctx); !again || !sleep(ctx, in) {
			break
		}
	}
	if e.Outcome == Elsewhere {
		e.Err = nil
	}
	return e.Result
}

// ask does not wait for another instance; a standby does, but only once it is known that there is one: else all ticks
// of an outage would wait for its end.
func (e *tickRun) ask(ctx context.Context) {
	e.claim(ctx, lockcore.NoWait, time.Time{})
	if busy, ok := errors.AsType[*lockcore.BusyError](e.Err); ok && e.Outcome == Elsewhere && e.job.Standby {
		e.claim(ctx, lockcore.Forever, time.Now().Add(-busy.HeldFor))
		if errors.Is(e.Err, lockcore.ErrClosed) && e.Outcome == NotRun { // it has stopped to watch
			e.Outcome = Elsewhere
		}
	}
}

// again says whether to ask again, and in what time.
func (e *tickRun) again(ctx context.Context) (time.Duration, bool) {
	busy, isBusy := errors.AsType[*lockcore.BusyError](e.Err)
	switch {
	case e.Outcome == NotRun: // Redis was away before fn could begin
		away := errors.Is(e.Err, lockcore.ErrUnavailable) || errors.Is(e.Err, lockcore.ErrLost)
		return askAgain, away && e.now().Before(e.until)
	case e.Outcome != Elsewhere || !isBusy:
		return 0, false
	case time.Since(e.unsure) < e.patience() && busy.Holder.Locker == e.locks.ID(): // an earlier claim of this process got no reply, or its job of the same name has the tick
		return askAgain, true
	case e.waited:
		return 0, false
	}
	early := e.early(ctx, e.Tick, busy)
	e.waited = early > 0
	return early + settling, early > 0
}

// settled sees to it that this instance does not take a hold of its own, under which fn was not called, for a run of the
// tick. Such a hold is left where Redis went away before it was released, and is abandoned when its lease is over. False:
// not yet.
func (e *tickRun) settled(ctx context.Context) bool {
	if e.unused == 0 {
		return true
	}
	h, err := e.locks.Inspect(ctx, lockcore.KindOnce, e.Tick.Key())
	switch {
	case err != nil, h.Token == e.unused && h.State == lockcore.StateHeld:
		return false
	case h.Token == e.unused && h.State == lockcore.StateAbandoned:
		if err := e.locks.Clear(ctx, lockcore.KindOnce, e.Tick.Key(), h); err != nil && !errors.Is(err, lockcore.ErrChanged) {
			return false
		}
	}
	e.unused = 0
	return true
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
