package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// errorsOf returns the errors of the results with an outcome, by ticks.
func (j *journal) errorsOf(o cronmw.Outcome) map[string]error {
	found := map[string]error{}
	for _, r := range j.of(o) {
		found[r.Tick.Time.UTC().Format("15:04:05")] = r.Err
	}
	return found
}

// A tick ends the run of the tick before, which has failed and is not run again, and begins when that
// run has returned. The instances may be two.
// Shows: K14
func TestReplace(t *testing.T) {
	inBubble(t, func(w *world) {
		var began []time.Time
		w.pair(cronmw.Job{Overlap: cronmw.Replace, Standby: true, OnResult: w.heard}, cronmw.Options{}, func(ctx context.Context, t cronmw.Tick) error {
			w.ran(t)
			if began = append(began, time.Now()); len(began) > 1 {
				return nil
			}
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return context.Cause(ctx)
		})
		until("2000-01-01 03:30:00")
		w.wantTicks("01 01:00:00", "01 02:00:00", "01 03:00:00")
		if late := began[1].Sub(at("2000-01-01 02:00:00")); late < 5*time.Second || late > 9*time.Second {
			w.Errorf("the second tick began after %v, want about 5 s", late)
		}
		if err := w.errorsOf(cronmw.Ran)["01:00:00"]; !errors.Is(err, lockcore.ErrReplaced) {
			w.Errorf("the first tick ended with %v", err)
		}
	})
}

// A run ignores the end of its ctx: the next tick begins when its lease has ended.
// Shows: K14
func TestReplaceStubborn(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		js, n := w.process().jobs(), 0
		w.must(js.Every("report", time.Hour, cronmw.Job{Overlap: cronmw.Replace, OnResult: w.heard}, func(_ context.Context, t cronmw.Tick) error {
			if w.ran(t); t.Time.Equal(at("2000-01-01 01:00:00")) {
				time.Sleep(61 * time.Minute)
			} else if n++; n == 1 && time.Since(t.Time) > 35*time.Second {
				w.Errorf("%v began after %v", t, time.Since(t.Time))
			}
			return nil
		}))
		w.start(js)
		until("2000-01-01 03:30:00")
		w.wantTicks("01 01:00:00", "01 02:00:00", "01 03:00:00")
	})
}

// Three ticks: the first run takes long to end, and of the two that wait the newest begins.
// Shows: K14
func TestReplaceNewestBegins(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:00:05")
		js := w.process().jobs()
		w.must(js.Every("report", 10*time.Second, cronmw.Job{Overlap: cronmw.Replace, OnResult: w.heard}, func(ctx context.Context, t cronmw.Tick) error {
			if w.ran(t); t.Time.Equal(at("2000-01-01 00:00:10")) {
				<-ctx.Done()
				time.Sleep(15 * time.Second) // until 35 s
				return context.Cause(ctx)
			}
			return nil
		}))
		w.start(js)
		until("2000-01-01 00:00:45")
		w.wantTicks("01 00:00:10", "01 00:00:30", "01 00:00:40")
		skipped := w.errorsOf(cronmw.Skipped)
		if err := skipped["00:00:20"]; len(skipped) != 1 || !errors.Is(err, lockcore.ErrBusy) {
			w.Errorf("skipped: %v", skipped)
		}
	})
}

// MinHold keeps the key after a run, and skips a tick as with Forbid.
// Shows: K14
func TestReplaceMinHold(t *testing.T) {
	inBubble(t, func(w *world) {
		js := w.process().jobs()
		j := cronmw.Job{Overlap: cronmw.Replace, Terms: lockcore.Terms{MinHold: 90 * time.Second}, OnResult: w.heard}
		w.must(js.Every("report", time.Minute, j, w.fn))
		w.start(js)
		until("2000-01-01 00:03:30")
		w.wantOutcomes(cronmw.Ran, cronmw.Skipped, cronmw.Ran)
	})
}
