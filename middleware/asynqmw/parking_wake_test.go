package asynqmw_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A process without parking has the key for longer than an unused subscription stays open. Its release
// wakes the task.
func TestParkingLongHold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other, err := lockcore.New(w.rdb, lockcore.Options{NoGroups: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close(context.Background()) }()
		lease, err := other.Acquire(context.Background(), "test:7", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		var g gauge
		w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{
			Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: 10 * time.Minute},
		})(g.handler(nothing)))
		task := w.parked(w.enqueue("charge", "7"))
		<-time.After(5 * time.Minute)
		_ = lease.Release(context.Background())
		if took := w.all([]*asynq.TaskInfo{task}); took > soon {
			t.Errorf("done after %v", took)
		}
	})
}

// A release that leaves the key cooling wakes no task. The end of MinHold does, also if no worker waits.
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
		if took := w.all(tasks); took < (n-1)*minHold || took > n*minHold+2*soon {
			w.Errorf("done after %v", took)
		}
		w.once(&g, n)
	})
}
