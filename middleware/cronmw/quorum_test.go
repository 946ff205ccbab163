package cronmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// A majority of servers records no ticks. So a job is refused when it is added, not at each tick.
func TestQuorumRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := lockcore.NewQuorum(redistest.Masters(t), lockcore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		js, err := cronmw.New(locks, cronmw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fn := func(context.Context, cronmw.Tick) error { return nil }
		_, ofAddTo := cronmw.AddTo(cron.New(cron.WithLocation(time.UTC)), locks, "c", "* * * * *", cronmw.Job{}, fn)
		for _, err := range []error{js.Add("a", "* * * * *", cronmw.Job{}, fn), js.Every("b", time.Hour, cronmw.Job{}, fn), ofAddTo} {
			if !errors.Is(err, lockcore.ErrUnsupported) || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "use one Redis") {
				t.Errorf("%v", err)
			}
		}
	})
}
