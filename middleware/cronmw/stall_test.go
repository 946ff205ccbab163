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

// Stall counts from the start of fn: neither an instance that asks early nor a handler that beats is stalled, one that hangs is.
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
						w.Errorf("stalled although it beats: %v", context.Cause(ctx))
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
