package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// Stall begins with fn. A claim that came early does not count, and neither does a handler that
// calls Beat. A handler that hangs is stalled.
// Shows: K10
func TestStall(t *testing.T) {
	for name, overlap := range map[string]cronmw.Overlap{"forbid": cronmw.Forbid, "allow": cronmw.Allow} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				until("2000-01-01 00:30:00")
				first := w.process()
				first.skew = 40 * time.Second
				js := first.jobs()
				runs := 0
				job := cronmw.Job{Overlap: overlap, Terms: lockcore.Terms{Stall: time.Second}, OnResult: w.heard}
				w.must(js.Every("report", time.Hour, job, func(ctx context.Context, t cronmw.Tick) error {
					w.ran(t)
					for range 10 {
						time.Sleep(900 * time.Millisecond)
						guard.Beat(ctx)
					}
					if ctx.Err() != nil {
						w.Errorf("stalled although it calls Beat: %v", context.Cause(ctx))
					}
					if runs++; runs == 2 {
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), lockcore.ErrStalled) {
							w.Errorf("%v", context.Cause(ctx))
						}
						return context.Cause(ctx)
					}
					return nil
				}))
				w.start(js)
				until("2000-01-01 02:30:00")
				w.wantTicks("01 01:00:00", "01 02:00:00")
				w.wantOutcomes(cronmw.Ran, cronmw.Ran)
			})
		})
	}
}

// A run is stalled. It would probably stall on other instances too, so it has failed, and no
// standby runs it again.
// Shows: K10
func TestStallIsAFailure(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{Standby: true, OnResult: w.heard, Terms: lockcore.Terms{Stall: time.Second}}
		until("2000-01-01 00:30:00")
		for range 3 {
			js := w.process().jobs()
			w.must(js.Every("report", time.Hour, j, func(ctx context.Context, t cronmw.Tick) error {
				w.ran(t)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			w.start(js)
		}
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		if n := len(w.of(cronmw.Elsewhere)); n != 2 {
			w.Errorf("%v", w.results)
		}
	})
}

// The Locker of a standby is closed while it waits. Its outcome is Elsewhere, not NotRun.
func TestStandbyIsClosed(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{Standby: true, OnResult: w.heard}
		until("2000-01-01 00:30:00")
		var standby *process
		for i := range 2 {
			p := w.process()
			js := p.jobs()
			if i == 1 {
				p.skew, standby = -time.Second, p
			}
			w.must(js.Every("report", time.Hour, j, w.lasting(10*time.Minute)))
			w.start(js)
		}
		until("2000-01-01 01:05:00")
		w.must(standby.locks.Close(context.Background()))
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		w.wantOutcomes(cronmw.Elsewhere, cronmw.Ran)
	})
}
