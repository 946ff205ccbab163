//go:build unix

package sqltest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

type once struct {
	river.MiddlewareDefaults
	locks *lockcore.Locker
}

func (o *once) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	_, err := guard.Once(ctx, o.locks, fmt.Sprint("river:", job.Kind, "/", job.ID), guard.OnceOptions{}, doInner)
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return river.JobSnooze(busy.RetryAfter()) // an error would use up an attempt
	}
	return err
}

// withOnce adds the middleware to a configuration.
func withOnce(locks *lockcore.Locker, config *river.Config) {
	config.Middleware = append(config.Middleware, &once{locks: locks})
}

// River takes a pointer as a worker middleware, and no value, because the methods of
// MiddlewareDefaults have pointer receivers. A job runs once, fails without a snooze, and is
// snoozed while its key is busy.
func TestRiver(t *testing.T) {
	if _, ok := any(once{}).(rivertype.Middleware); ok {
		t.Error("a value is a middleware too: change the page")
	}
	locks, config := locktest.New(t), new(river.Config)
	withOnce(locks, config)
	m, ok := config.Middleware[0].(rivertype.WorkerMiddleware)
	if !ok || !m.IsMiddleware() {
		t.Fatal("this is no worker middleware")
	}
	runs, failure := 0, errors.New("the printer is out of paper")
	job := &rivertype.JobRow{ID: 7, Kind: "invoice"}
	work := func(err error) error {
		return m.Work(t.Context(), job, func(context.Context) error { runs++; return err })
	}
	release := locktest.HoldOnce(t, locks, "river:invoice/7")
	if snoozed, ok := errors.AsType[*rivertype.JobSnoozeError](work(nil)); !ok || snoozed.Duration <= 0 || runs > 0 {
		t.Errorf("a busy key: %v, %d runs", snoozed, runs)
	}
	release()
	if err := work(failure); !errors.Is(err, failure) {
		t.Errorf("%v, want the job's own error", err)
	}
	for range 2 { // River rescues a job whose worker seems to hang, so the same ID comes again
		if err := work(nil); err != nil {
			t.Error(err)
		}
	}
	if runs != 2 {
		t.Errorf("%d runs, want the failed one and one more", runs)
	}
}
