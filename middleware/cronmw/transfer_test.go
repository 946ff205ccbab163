package cronmw_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// late returns a wrapper for a chain that delays the first n runs until release is closed.
func late(n int32, release <-chan struct{}) cron.Option {
	var begun atomic.Int32
	return cron.WithChain(func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			if begun.Add(1) <= n {
				<-release
			}
			j.Run()
		})
	})
}

// Goroutines of cron start late. Each gets its own tick, although Entry.Prev is the next one by
// then.
// Shows: K4
func TestAddToLateGoroutine(t *testing.T) {
	inBubble(t, func(w *world) {
		release := make(chan struct{})
		var prev time.Time
		var c *cron.Cron
		var id cron.EntryID
		c = w.cron(late(2, release))
		j := cronmw.Job{Overlap: cronmw.Allow}
		id = w.add(c, "* * * * *", j, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			p := c.Entry(id).Prev
			w.mu.Lock()
			defer w.mu.Unlock()
			prev = p
			return nil
		})
		w.run(c)
		until("2000-01-01 00:02:30")
		w.wantTicks()
		close(release)
		synctest.Wait()
		got := w.ticks()
		w.mu.Lock()
		named := prev
		w.mu.Unlock()
		if len(got) != 2 || got[0] == got[1] || !named.Equal(at("2000-01-01 00:02:00")) {
			w.Errorf("ran %q, Entry.Prev %v", got, named)
		}
		until("2000-01-01 00:03:30")
		if got := w.ticks(); len(got) != 3 || got[2] != "01 00:03:00" {
			w.Errorf("ran %q", got)
		}
	})
}

// Only the first run is late. The second one runs at its time with its own tick, and the first one
// still gets its own.
// Shows: K1, K4
func TestAddToOvertaken(t *testing.T) {
	inBubble(t, func(w *world) {
		release := make(chan struct{})
		c := w.cron(late(1, release))
		w.add(c, "* * * * *", cronmw.Job{}, w.fn)
		w.run(c)
		until("2000-01-01 00:02:30")
		w.wantTicks("01 00:02:00")
		close(release)
		until("2000-01-01 00:03:30")
		w.wantTicks("01 00:02:00", "01 00:01:00", "01 00:03:00")
	})
}

// A wrapper skips a run. The tick of that run is dropped, and later runs have their own ticks.
func TestAddToSkipIfStillRunning(t *testing.T) {
	inBubble(t, func(w *world) {
		c := w.cron(cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
		w.add(c, "* * * * *", cronmw.Job{Overlap: cronmw.Allow}, w.lasting(150*time.Second))
		w.run(c)
		until("2000-01-01 00:11:00")
		w.wantTicks("01 00:01:00", "01 00:04:00", "01 00:07:00", "01 00:10:00")
	})
}

// A wrapper delays runs, as cron.DelayIfStillRunning does with a mutex. No tick is lost.
func TestAddToDelay(t *testing.T) {
	inBubble(t, func(w *world) {
		free := make(chan struct{}, 1)
		c := w.cron(cron.WithChain(func(j cron.Job) cron.Job {
			return cron.FuncJob(func() {
				free <- struct{}{}
				j.Run()
				<-free
			})
		}))
		fn := w.lasting(time.Second)
		slow := w.lasting(150 * time.Second)
		w.add(c, "* * * * *", cronmw.Job{}, func(ctx context.Context, t cronmw.Tick) error {
			if t.Time.Minute() == 1 {
				return slow(ctx, t)
			}
			return fn(ctx, t)
		})
		w.run(c)
		until("2000-01-01 00:04:30")
		w.wantTicks("01 00:01:00", "01 00:03:00", "01 00:02:00", "01 00:04:00")
	})
}

// Other callers of the schedule's Next, and a stop of the cron, do not change which ticks run.
func TestAddToNextByOthers(t *testing.T) {
	inBubble(t, func(w *world) {
		c := w.cron()
		id := w.add(c, "*/10 * * * *", cronmw.Job{OnResult: w.heard}, w.fn)
		c.Start()
		look := func() {
			s := c.Entry(id).Schedule
			for _, t := range []time.Time{at("1999-12-31 00:00:00"), time.Now(), time.Now().Add(-time.Second)} {
				for range 20 {
					t = s.Next(t)
				}
			}
		}
		look()
		until("2000-01-01 00:15:00")
		look()
		until("2000-01-01 00:25:00")
		c.Stop()
		until("2000-01-01 00:45:00")
		look()
		w.run(c)
		until("2000-01-01 01:05:00")
		w.wantTicks("01 00:10:00", "01 00:20:00", "01 00:50:00", "01 01:00:00")
		w.wantOutcomes(cronmw.Ran, cronmw.Ran, cronmw.Ran, cronmw.Ran)
	})
}

// After a pause cron runs one of the missed ticks, the oldest one. fn gets that tick.
func TestAddToPause(t *testing.T) {
	inBubble(t, func(w *world) {
		pause := 35 * time.Minute
		c := w.cron(cron.WithLogger(onRun(func() {
			time.Sleep(pause) // blocks cron's goroutine, which then continues with the current time
			pause = 0
		})))
		w.add(c, "*/10 * * * *", cronmw.Job{MaxLateness: time.Hour}, w.fn)
		w.run(c)
		until("2000-01-01 00:56:00")
		w.wantTicks("01 00:10:00", "01 00:20:00")
		until("2000-01-01 01:05:00")
		w.wantTicks("01 00:10:00", "01 00:20:00", "01 01:00:00")
	})
}

type onRun func()

func (f onRun) Info(msg string, _ ...any) {
	if msg == "run" {
		f()
	}
}
func (onRun) Error(error, string, ...any) {}
