package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// The lease ends, and fn returns the error of its ctx. The Result has that error and the cause.
// Shows: L15
func TestEndedLeaseIsNamed(t *testing.T) {
	for name, overlap := range map[string]cronmw.Overlap{"forbid": cronmw.Forbid, "allow": cronmw.Allow} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				until("2000-01-01 00:30:00")
				var got []error
				job := cronmw.Job{Overlap: overlap, Terms: lockcore.Terms{MaxHold: time.Minute}, OnResult: func(r cronmw.Result) { got = append(got, r.Err) }}
				js := w.process().jobs()
				w.must(js.Every("report", time.Hour, job, func(ctx context.Context, _ cronmw.Tick) error {
					<-ctx.Done()
					return ctx.Err()
				}))
				w.start(js)
				until("2000-01-01 01:30:00")
				synctest.Wait()
				if len(got) != 1 || !errors.Is(got[0], lockcore.ErrMaxHold) || !errors.Is(got[0], context.Canceled) && !errors.Is(got[0], context.DeadlineExceeded) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}
