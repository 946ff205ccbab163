package asynqmw_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A release that leaves the key cooling wakes no task. The end of MinHold wakes one, also if no
// worker waits.
func TestParkingMinHold(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		const n, minHold = 8, 300 * time.Millisecond
		var g gauge
		w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{
			Terms: lockcore.Terms{Wait: lockcore.NoWait, MinHold: minHold},
		})(g.handler(nothing)))
		var tasks []*asynq.TaskInfo
		for range n {
			tasks = append(tasks, w.enqueue("charge", "7"))
		}
		if took := w.all(tasks); took < (n-1)*minHold || w.late(took, n*minHold+2*soon) {
			w.Errorf("done after %v", took)
		}
		w.once(&g, n)
	})
}
