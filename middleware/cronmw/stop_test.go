package cronmw_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// An instance stops during its claim, at different moments, while others find the tick held. The
// tick runs once.
// Shows: K9
func TestStopWhileClaiming(t *testing.T) {
	for after := 20 * time.Millisecond; after < time.Second; after += 40 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				until("2000-01-01 00:55:00")
				slow := w.process()
				js := slow.jobs()
				w.must(js.Every("report", 10*time.Minute, cronmw.Job{OnResult: w.heard}, w.fn))
				stop := w.start(js)
				for range 2 {
					p := w.process()
					p.skew = -200 * time.Millisecond
					js := p.jobs()
					w.must(js.Every("report", 10*time.Minute, cronmw.Job{OnResult: w.heard}, w.fn))
					w.start(js)
				}
				until("2000-01-01 01:05:00") // all instances are connected
				slow.faults.Delay(100 * time.Millisecond)
				until("2000-01-01 01:10:00")
				time.Sleep(after)
				stop()
				until("2000-01-01 01:15:00")
				w.wantTicks("01 01:00:00", "01 01:10:00")
				if n := len(w.of(cronmw.Elsewhere)); n != 4 {
					w.Errorf("%d times an instance found a tick taken, want 4: %v", n, w.results)
				}
			})
		})
	}
}
