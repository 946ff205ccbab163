package asynqmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Five schedulers enqueue one tick, two seconds apart, and a worker completes the first task before
// the second scheduler. The tick has one task.
// Shows: A11
func TestEnqueueTick(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var g gauge
		w.serve(quick(), g.handler(nothing))
		task := asynq.NewTask("report", nil, asynq.TaskID("mine"), asynq.Retention(time.Second)) // EnqueueTick replaces both options
		noon := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
		for range 5 {
			if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", noon, task); err != nil {
				w.Error(err)
			}
			<-time.After(2 * time.Second)
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
		info, err := w.inspect.GetTaskInfo("default", asynqmw.TickID("report", noon))
		if err != nil || info.ID != "report@946728000" || info.State != asynq.TaskStateCompleted || info.Retention != time.Hour {
			w.Errorf("task %+v, %v", info, err)
		}
		later := noon.Add(time.Minute).In(time.FixedZone("X", 3600)) // the zone is not part of the task ID
		for _, at := range []time.Time{later, later.UTC()} {
			if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at, task, asynq.Retention(24*time.Hour), asynq.MaxRetry(7)); err != nil {
				w.Error(err)
			}
		}
		info, err = w.inspect.GetTaskInfo("default", asynqmw.TickID("report", later))
		if err != nil || info.Retention != 24*time.Hour || info.MaxRetry != 7 {
			w.Errorf("task %+v, %v: the options of the call were not used", info, err)
		}
		w.ends(info, asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want one per tick", runs)
		}
	})
}

// Five schedulers enqueue a tick at the same time. There is one task, and each call returns nil.
func TestEnqueueTickAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		noon := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
		errs := make(chan error, 5)
		for range 5 {
			go func() {
				errs <- asynqmw.EnqueueTick(w.Context(), w.client, "report", noon, asynq.NewTask("report", nil))
			}()
		}
		for range 5 {
			if err := <-errs; err != nil {
				w.Error(err)
			}
		}
		if info, err := w.inspect.GetQueueInfo("default"); err != nil || info.Size != 1 {
			w.Errorf("queue %+v, %v; want one task", info, err)
		}
	})
}

// EnqueueTick returns an error if the tick was not enqueued: because of the arguments, or because
// of asynq.
func TestEnqueueTickErrors(t *testing.T) {
	inBubble(t, func(w *world) {
		at, task := time.Now(), asynq.NewTask("report", nil)
		err := asynqmw.EnqueueTick(w.Context(), w.client, " ", time.Time{}, task, asynq.TaskID("mine"), asynq.Retention(time.Second))
		for _, want := range []string{"EnqueueTick", "name", "at must", `TaskID("mine")`, "Retention(1s)"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("error %q does not name %s", err, want)
			}
		}
		unique := asynq.Unique(time.Hour)
		if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at, task, unique); err != nil {
			w.Error(err)
		}
		if err := asynqmw.EnqueueTick(w.Context(), w.client, "report", at.Add(time.Minute), task, unique); !errors.Is(err, asynq.ErrDuplicateTask) {
			w.Errorf("error %v, want ErrDuplicateTask: this tick has no task", err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := asynqmw.EnqueueTick(ctx, w.client, "report", at.Add(time.Hour), task); err == nil {
			w.Error("nil for a tick that was not enqueued")
		}
	})
}
