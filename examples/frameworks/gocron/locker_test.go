package gocron_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cron "github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/examples/frameworks/gocron"
	"github.com/holdfast-go/holdfast/locktest"
)

// Five schedulers begin 20 ms apart, and run a job of 5 ms three times. With a splay of 600 ms each
// tick runs once. The control has a splay of 1 ns: each scheduler finds the key free again, and all
// of them run each tick.
func TestLocker(t *testing.T) {
	for splay, want := range map[time.Duration]int64{600 * time.Millisecond: 3, 1: 15} {
		synctest.Test(t, func(t *testing.T) {
			locks := locktest.New(t)
			var runs atomic.Int64
			var schedulers []cron.Scheduler
			for range 5 {
				s, err := cron.NewScheduler(cron.WithDistributedLocker(gocron.Locker(locks, splay)))
				if err != nil {
					t.Fatal(err)
				}
				job := func() { runs.Add(1); time.Sleep(5 * time.Millisecond) }
				if _, err := s.NewJob(cron.DurationJob(2*time.Second), cron.NewTask(job), cron.WithName("report")); err != nil {
					t.Fatal(err)
				}
				s.Start()
				schedulers = append(schedulers, s)
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(7 * time.Second) // ticks at 2, 4 and 6 s
			for _, s := range schedulers {
				if err := s.Shutdown(); err != nil {
					t.Error(err)
				}
			}
			if runs.Load() != want {
				t.Errorf("splay %v: %d runs, want %d", splay, runs.Load(), want)
			}
		})
	}
}
