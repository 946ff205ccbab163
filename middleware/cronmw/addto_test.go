package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// run starts a cron, and stops it when the test ends.
func (w *world) run(c *cron.Cron) {
	c.Start()
	w.Cleanup(func() { <-c.Stop().Done() })
}

func (w *world) cron(o ...cron.Option) *cron.Cron {
	return cron.New(append([]cron.Option{cron.WithLocation(time.UTC)}, o...)...)
}

func (w *world) add(c *cron.Cron, spec string, j cronmw.Job, fn func(context.Context, cronmw.Tick) error) cron.EntryID {
	w.Helper()
	id, err := cronmw.AddTo(c, w.process().locks, "report", spec, j, fn)
	w.must(err)
	return id
}

// Each tick of the crons of three processes runs once.
func TestAddTo(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 3 {
			c := w.cron()
			w.add(c, "*/10 * * * *", cronmw.Job{OnResult: w.heard}, w.fn)
			w.run(c)
		}
		until("2000-01-01 00:35:00")
		w.wantTicks("01 00:10:00", "01 00:20:00", "01 00:30:00")
		if len(w.of(cronmw.Ran)) != 3 || len(w.of(cronmw.Elsewhere)) != 6 {
			w.Errorf("%v", w.all())
		}
	})
}

// The options of cron decide how a spec is parsed, and the zone. The entry is a normal entry of
// cron.
func TestAddToOptions(t *testing.T) {
	inBubble(t, func(w *world) {
		tokyo := time.FixedZone("Tokyo", 9*3600)
		c := cron.New(cron.WithSeconds(), cron.WithLocation(tokyo))
		id := w.add(c, "30 0 10 * * *", cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
			if t.Time.Hour() != 10 || t.Time.Location() != tokyo {
				w.Errorf("the tick is %v", t.Time)
			}
			w.ran(t)
			return nil
		})
		w.run(c)
		time.Sleep(time.Second)
		if n := c.Entries(); len(n) != 1 || n[0].ID != id || !n[0].Next.Equal(at("2000-01-01 01:00:30")) {
			w.Errorf("%+v", n)
		}
		until("2000-01-02 01:30:00")
		c.Remove(id)
		until("2000-01-03 12:00:00")
		w.wantTicks("01 01:00:30", "02 01:00:30")
	})
}

// The handler panics. The tick has failed on all instances, and the panic reaches the chain. With
// cron.Recover in the chain the next tick runs.
func TestAddToPanic(t *testing.T) {
	inBubble(t, func(w *world) {
		var logged []error
		for range 2 {
			c := w.cron(cron.WithChain(cron.Recover(errorLog(func(err error) { w.mu.Lock(); defer w.mu.Unlock(); logged = append(logged, err) }))))
			w.add(c, "*/10 * * * *", cronmw.Job{Standby: true, OnResult: w.heard}, func(_ context.Context, t cronmw.Tick) error {
				w.ran(t)
				panic(errBoom)
			})
			w.run(c)
		}
		until("2000-01-01 00:25:00")
		w.wantTicks("01 00:10:00", "01 00:20:00")
		if len(logged) != 2 || !errors.Is(logged[0], errBoom) {
			w.Errorf("logged %v", logged)
		}
	})
}

// With cron.Recover outside of cron.SkipIfStillRunning, a panic keeps the place of the run that it
// ended, so each later run is skipped. Inside of it the next tick runs.
func TestAddToRecoverAndSkip(t *testing.T) {
	skip, rec := cron.SkipIfStillRunning(cron.DiscardLogger), cron.Recover(cron.DiscardLogger)
	for name, c := range map[string]struct {
		chain []cron.JobWrapper
		ticks []string
	}{
		"Recover outside": {[]cron.JobWrapper{rec, skip}, []string{"01 00:10:00"}},
		"Recover inside":  {[]cron.JobWrapper{skip, rec}, []string{"01 00:10:00", "01 00:20:00", "01 00:30:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				cr := w.cron(cron.WithChain(c.chain...))
				w.add(cr, "*/10 * * * *", cronmw.Job{OnResult: w.heard}, func(_ context.Context, t cronmw.Tick) error {
					w.ran(t)
					panic(errBoom)
				})
				w.run(cr)
				until("2000-01-01 00:35:00")
				w.wantTicks(c.ticks...)
			})
		})
	}
}

type errorLog func(error)

func (errorLog) Info(string, ...any)                   {}
func (f errorLog) Error(err error, _ string, _ ...any) { f(err) }

// The job of an entry is called directly. It has no tick, so nothing runs.
func TestAddToByHand(t *testing.T) {
	inBubble(t, func(w *world) {
		c := w.cron()
		id := w.add(c, "*/10 * * * *", cronmw.Job{}, w.fn)
		c.Entry(id).Job.Run()
		w.run(c)
		until("2000-01-01 00:15:00")
		c.Entry(id).WrappedJob.Run()
		until("2000-01-01 00:25:00")
		w.wantTicks("01 00:10:00", "01 00:20:00")
	})
}

// With Standby c.Stop also waits for a run on another instance, until the Locker is closed. A tick
// of a cron and the same tick of Jobs run once together.
func TestAddToStop(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{Standby: true, OnResult: w.heard}
		fast := w.process()
		fast.skew = 10 * time.Second
		js := fast.jobs()
		w.must(js.Add("report", "*/10 * * * *", j, w.lasting(5*time.Minute)))
		w.start(js)
		c, p := w.cron(), w.process()
		_, err := cronmw.AddTo(c, p.locks, "report", "*/10 * * * *", j, w.lasting(5*time.Minute))
		w.must(err)
		c.Start()
		until("2000-01-01 00:11:00")
		stopped := c.Stop()
		synctest.Wait()
		if stopped.Err() != nil {
			w.Error("the standby does not wait")
		}
		start := time.Now()
		w.must(p.locks.Close(w.Context()))
		<-stopped.Done()
		if took := time.Since(start); took > time.Second {
			w.Errorf("Stop waited for another %v", took)
		}
		until("2000-01-01 00:17:00")
		w.wantTicks("01 00:10:00")
	})
}

// AddTo returns an error for each invalid argument, and adds no entry then.
func TestAddToErrors(t *testing.T) {
	inBubble(t, func(w *world) {
		locks := w.process().locks
		c := w.cron(cron.WithParser(odd{}))
		if _, err := cronmw.AddTo(c, locks, "taken", "* * * * *", cronmw.Job{}, w.fn); err != nil {
			w.Fatal(err)
		}
		for spec, want := range map[string]string{
			"@every 5m": "use Jobs.Every", "@reboot": "guard.Once", "delay": "use Jobs.Every", "0 0 30 2 *": "no tick", "x": "expected exactly 5", "TZ=UTC": "nothing else",
		} {
			_, err := cronmw.AddTo(c, locks, "a", spec, cronmw.Job{}, w.fn)
			w.wantError(err, want)
		}
		_, err := cronmw.AddTo(c, locks, "taken", "@daily", cronmw.Job{CatchUp: cronmw.CatchUpLatest, Overlap: -1}, nil)
		for _, want := range []string{"CatchUp is for Jobs", `a job "taken" already`, "Overlap is -1", "must not be nil"} {
			w.wantError(err, want)
		}
		_, err = cronmw.AddTo(nil, nil, "", "@daily", cronmw.Job{}, nil)
		w.wantError(err, "cron must not be nil")
		if n := len(c.Entries()); n != 1 {
			w.Errorf("%d entries", n)
		}
	})
}

// odd is a custom parser of a user.
type odd struct{}

func (odd) Parse(spec string) (cron.Schedule, error) {
	if spec == "delay" {
		return cron.Every(time.Minute), nil
	}
	return cron.ParseStandard(spec)
}
