//go:build unix

package rivermw_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// The tests of this file show what the package relies on in River.

type (
	middlewareFunc = river.WorkerMiddlewareFunc
	doInner        = func(context.Context) error
)

// handled counts the calls of an error handler.
type handled struct{ errors, panics atomic.Int32 }

func (h *handled) HandleError(context.Context, *rivertype.JobRow, error) *river.ErrorHandlerResult {
	h.errors.Add(1)
	return nil
}

func (h *handled) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	h.panics.Add(1)
	return nil
}

// An error that wraps a JobSnoozeError snoozes the job, also on its last attempt: no attempt, no
// error, no ErrorHandler. The metadata count the snoozes, and River stores what MetadataSet set. Up
// to 5 s the job is available at once, with a time in the future.
func TestFactSnooze(t *testing.T) {
	t.Parallel()
	w, h := newWorld(t), new(handled)
	var runs atomic.Int32
	cfg := config(1, charging(func(ctx context.Context, job *river.Job[chargeArgs]) error {
		if job.Attempt != 1 {
			t.Errorf("attempt %d", job.Attempt)
		}
		switch runs.Add(1) {
		case 1:
			if err := river.MetadataSet(ctx, "why", "busy"); err != nil {
				t.Error(err)
			}
			return errors.Join(errors.New("busy"), river.JobSnooze(100*time.Millisecond))
		case 2:
			return river.JobSnooze(5 * time.Second)
		default:
			return errors.Join(errors.New("busy"), river.JobSnooze(time.Minute))
		}
	}))
	cfg.ErrorHandler, cfg.MaxAttempts = h, 1
	w.serve(cfg)
	id := w.insert(chargeArgs{})
	job := w.until(id, func(j *rivertype.JobRow) bool { return snoozes(t, j) == 2 })
	if job.State != rivertype.JobStateAvailable || job.Attempt != 0 || len(job.Errors) != 0 || time.Until(job.ScheduledAt) < time.Second || !strings.Contains(string(job.Metadata), `"why": "busy"`) {
		t.Errorf("%+v, metadata %s", job, job.Metadata)
	}
	// A wake makes it run at once.
	if _, err := w.client.JobRetry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if job = w.ends(id, rivertype.JobStateScheduled); job.Attempt != 0 || snoozes(t, job) != 3 || job.MaxAttempts != 1 {
		t.Errorf("%+v, metadata %s", job, job.Metadata)
	}
	if n := h.errors.Load(); n != 0 {
		t.Errorf("%d calls of the ErrorHandler", n)
	}
}

// A job that is snoozed for more than 5 s is moved by the leader, within 5 s after it is due.
func TestFactScheduler(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w := newWorld(t)
	var runs atomic.Int32
	w.serve(config(1, charging(func(context.Context, *river.Job[chargeArgs]) error {
		if runs.Add(1) == 1 {
			return river.JobSnooze(6 * time.Second)
		}
		return nil
	})))
	id := w.insert(chargeArgs{})
	w.ends(id, rivertype.JobStateScheduled)
	due := w.job(id).ScheduledAt
	job := w.ends(id, rivertype.JobStateCompleted)
	if job.AttemptedAt.Before(due) {
		t.Errorf("worked at %v, due at %v", job.AttemptedAt, due)
	}
	t.Logf("%v late", job.AttemptedAt.Sub(due))
}

// JobRetry makes a snoozed job available, leaves a running one alone, and works a completed one
// again: with one more attempt than errors, without the time of its completion, with its metadata.
func TestFactRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, end := make(chan int, 1), make(chan error)
	w.serve(config(1, charging(func(ctx context.Context, job *river.Job[chargeArgs]) error {
		began <- job.Attempt
		_ = river.MetadataSet(ctx, "ran", true)
		return <-end
	})))
	id := w.insert(chargeArgs{})
	retry := func() *rivertype.JobRow {
		job, err := w.client.JobRetry(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	<-began
	if job := retry(); job.State != rivertype.JobStateRunning || job.Attempt != 1 {
		t.Errorf("running: %+v", job)
	}
	end <- river.JobSnooze(time.Hour)
	w.ends(id, rivertype.JobStateScheduled)
	if job := retry(); job.State != rivertype.JobStateAvailable || time.Until(job.ScheduledAt) > time.Second {
		t.Errorf("snoozed: %+v", job)
	}
	<-began
	end <- errors.New("no")
	if attempt := <-began; attempt != 2 || len(w.job(id).Errors) != 1 {
		t.Errorf("after an error: attempt %d", attempt)
	}
	end <- nil
	if job := w.ends(id, rivertype.JobStateCompleted); job.FinalizedAt == nil {
		t.Errorf("completed: %+v", job)
	}
	retry()
	if attempt := <-began; attempt != 3 {
		t.Errorf("attempt %d", attempt)
	}
	if job := w.job(id); job.FinalizedAt != nil || len(job.Errors) != 1 || !strings.Contains(string(job.Metadata), "ran") {
		t.Errorf("again: %+v", job)
	}
	end <- nil
	if _, err := w.client.JobRetry(t.Context(), id+1); !errors.Is(err, rivertype.ErrNotFound) {
		t.Error(err)
	}
}

// The list of the worker is around that of the configuration, and the first one of each list is
// outside. The ctx has the client, and no deadline: the timeout of the job begins inside.
func TestFactMiddleware(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var order []string
	named := func(name string) middlewareFunc {
		return func(ctx context.Context, _ *rivertype.JobRow, doInner doInner) error {
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			if river.ClientFromContext[pgx.Tx](ctx) != w.client {
				t.Error("another client")
			}
			if _, bounded := ctx.Deadline(); bounded {
				t.Error("the ctx of a middleware has a deadline")
			}
			return doInner(ctx)
		}
	}
	work := charging(func(ctx context.Context, _ *river.Job[chargeArgs]) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the ctx of the handler has no deadline")
		}
		return nil
	}, named("worker 1"), named("worker 2"))
	work.timeout = time.Minute
	cfg := config(1, work)
	cfg.Middleware = []rivertype.Middleware{named("config 1"), named("config 2")}
	w.serve(cfg)
	w.ends(w.insert(chargeArgs{}), rivertype.JobStateCompleted)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"worker 1", "worker 2", "config 1", "config 2"}; !slices.Equal(order, want) {
		t.Errorf("%q", order)
	}
}

// Stop does not cancel the ctx of a job, and waits for it. StopAndCancel cancels it. A job that then
// returns an error that wraps a JobSnoozeError is snoozed, and one that returns the error of its ctx
// is available: neither uses up an attempt.
func TestFactStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := make(chan context.Context)
	end := make(chan struct{})
	cfg := config(2, charging(func(ctx context.Context, job *river.Job[chargeArgs]) error {
		began <- ctx
		if job.Args.Account == "wait" {
			<-end
			return nil
		}
		<-ctx.Done()
		if job.Args.Account == "snooze" {
			return errors.Join(ctx.Err(), river.JobSnooze(0))
		}
		return context.Cause(ctx)
	}))
	client := w.serve(cfg)
	id := w.insert(chargeArgs{Account: "wait"})
	ctx := <-began
	stopped := make(chan error)
	go func() { stopped <- client.Stop(context.Background()) }()
	select {
	case <-ctx.Done():
		t.Error("Stop has canceled the ctx")
	case err := <-stopped:
		t.Errorf("Stop does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	w.ends(id, rivertype.JobStateCompleted)

	client = w.serve(cfg)
	ids := []int64{w.insert(chargeArgs{Account: "snooze"}), w.insert(chargeArgs{Account: "error"})}
	<-began
	<-began
	if err := client.StopAndCancel(t.Context()); err != nil {
		t.Error(err)
	}
	for i, id := range ids {
		if job := w.job(id); job.State != rivertype.JobStateAvailable || job.Attempt != 0 || len(job.Errors) != 0 || snoozes(t, job) != 1-i {
			t.Errorf("%+v, metadata %s", job, job.Metadata)
		}
	}
}

// JobCancel of the client cancels the ctx of a running job, which is then canceled even if its
// handler returns an error that snoozes it.
func TestFactCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := make(chan struct{})
	w.serve(config(1, charging(func(ctx context.Context, _ *river.Job[chargeArgs]) error {
		close(began)
		<-ctx.Done()
		return river.JobSnooze(0)
	})))
	id := w.insert(chargeArgs{})
	<-began
	if _, err := w.client.JobCancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.ends(id, rivertype.JobStateCancelled)
}
