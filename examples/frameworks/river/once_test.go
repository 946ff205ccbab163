package river_test

import (
	"context"
	"errors"
	"testing"

	queue "github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/examples/frameworks/river"
	"github.com/holdfast-go/holdfast/locktest"
)

// A job runs once, fails without a snooze, and is snoozed while its key is busy.
func TestWithOnce(t *testing.T) {
	locks, config := locktest.New(t), new(queue.Config)
	river.WithOnce(locks, config)
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
