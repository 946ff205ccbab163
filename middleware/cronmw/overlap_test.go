package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// pair starts two instances at half past midnight. The clock of the second one is a second slow.
func (w *world) pair(j cronmw.Job, o cronmw.Options, fn func(context.Context, cronmw.Tick) error) (stopFirst func()) {
	w.Helper()
	until("2000-01-01 00:30:00")
	first := w.process().with(o)
	w.must(first.Every("report", time.Hour, j, fn))
	stopFirst = w.start(first)
	p := w.process()
	p.skew = -time.Second
	second := p.jobs()
	w.must(second.Every("report", time.Hour, j, fn))
	w.start(second)
	return stopFirst
}

// A run that had no effect leaves the key in its MinHold. That delays another run of the same tick,
// and does not decide the tick.
// Shows: K8
func TestMinHoldStandby(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{Standby: true, OnResult: w.heard, Terms: lockcore.Terms{MinHold: time.Minute}}
		var began []time.Time
		w.pair(j, cronmw.Options{}, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			if began = append(began, time.Now()); len(began) == 1 {
				time.Sleep(3 * time.Second)
				return guard.NoEffect(errBoom)
			}
			return nil
		})
		until("2000-01-01 01:30:00")
		w.wantOutcomes(cronmw.Ran, cronmw.Ran)
		if len(began) != 2 || began[1].Sub(began[0]).Round(time.Second) != time.Minute {
			w.Errorf("began at %v", began)
		}
	})
}

// A run is canceled by a shutdown during its MinHold. The standby runs the tick again.
// Shows: K8
func TestMinHoldCutShort(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{Standby: true, OnResult: w.heard, Terms: lockcore.Terms{MinHold: time.Minute}}
		stop := w.pair(j, cronmw.Options{CancelOnStop: true}, w.lasting(20*time.Second))
		until("2000-01-01 01:00:05")
		stop()
		until("2000-01-01 01:30:00")
		w.wantOutcomes(cronmw.Ran, cronmw.TookOver)
	})
}

// A tick is skipped because the MinHold of an earlier tick's run is not over. The Result names no
// holder, because no run holds the key.
// Shows: K8
func TestMinHoldSkips(t *testing.T) {
	inBubble(t, func(w *world) {
		js := w.process().jobs()
		w.must(js.Every("report", time.Minute, cronmw.Job{Terms: lockcore.Terms{MinHold: 90 * time.Second}, OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 00:03:30")
		w.wantOutcomes(cronmw.Ran, cronmw.Skipped, cronmw.Ran)
		if busy, ok := errors.AsType[*lockcore.BusyError](w.results[1].Err); !ok || busy.Holder != (event.Holder{}) {
			w.Errorf("%v", w.results[1].Err)
		}
	})
}

// The instance that ran a tick cannot release the key of the job. A standby does not treat this
// hold as an earlier run, so the tick is not skipped.
// Shows: K8
func TestOverlapUnreleased(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		j := cronmw.Job{Standby: true, OnResult: w.heard}
		first := w.process()
		js := first.jobs()
		w.must(js.Every("report", time.Hour, j, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			for range 10 { // the releases of the job's key
				first.faults.LoseRequest(func(r faulty.Request) bool { return r.About("cron:report") && !r.About("report@") })
			}
			return guard.NoEffect(errBoom)
		}))
		w.start(js)
		second := w.process()
		second.skew = -time.Second
		js = second.jobs()
		w.must(js.Every("report", time.Hour, j, w.fn))
		w.start(js)
		until("2000-01-01 01:30:00")
		if len(w.of(cronmw.Skipped)) > 0 || len(w.ticks()) != 2 {
			w.Errorf("%v", w.results)
		}
	})
}

// A standby waits for the job's key that a dead instance holds. This wait does not count for Stall,
// even if Stall is short.
// Shows: K10
func TestStallTakeover(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		first := w.process()
		first.skew = 5 * time.Second
		js := first.jobs()
		j := cronmw.Job{Standby: true, Terms: lockcore.Terms{Stall: 200 * time.Millisecond}}
		w.must(js.Every("report", time.Hour, j, func(ctx context.Context, t cronmw.Tick) error {
			w.ran(t)
			first.faults.Silence()
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				guard.Beat(ctx)
			}
			return context.Cause(ctx)
		}))
		w.start(js)
		j.OnResult = w.heard
		js = w.process().jobs()
		w.must(js.Every("report", time.Hour, j, w.fn))
		w.start(js)
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00", "01 01:00:00")
		w.wantOutcomes(cronmw.TookOver)
	})
}

// The Terms of the Locker apply like those of the job: MaxHold begins with fn, also with Allow.
// Shows: K10
func TestLockerTerms(t *testing.T) {
	for name, overlap := range map[string]cronmw.Overlap{"forbid": cronmw.Forbid, "allow": cronmw.Allow} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				until("2000-01-01 00:30:00")
				p := w.process(func(o *lockcore.Options) { o.Terms.MaxHold = 10 * time.Second })
				p.skew = 20 * time.Second
				js := p.jobs()
				w.must(js.Every("report", time.Hour, cronmw.Job{Overlap: overlap, OnResult: w.heard}, w.lasting(9*time.Second)))
				w.must(js.Every("slow", 2*time.Hour, cronmw.Job{Overlap: overlap, OnResult: w.heard}, w.lasting(11*time.Second)))
				w.start(js)
				until("2000-01-01 02:30:00")
				w.wantOutcomes(cronmw.Ran, cronmw.Ran, cronmw.Ran)
				failed := 0
				for _, r := range w.results {
					if errors.Is(r.Err, lockcore.ErrMaxHold) && r.Tick.Name == "slow" {
						failed++
					} else if r.Err != nil {
						w.Error(r.Err)
					}
				}
				if failed != 1 {
					w.Errorf("%v", w.results)
				}
			})
		})
	}
}
