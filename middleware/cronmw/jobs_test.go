package cronmw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// 50 instances have clocks that are wrong by up to 20 s, and a job is short. Each tick runs once,
// and not before its time. A lock on the name of the job would allow up to 50 runs per tick.
// Shows: K1
func TestSkewedInstances(t *testing.T) {
	const instances = 50
	ticks := testlevel.Pick(t, 3, 30, 1000)
	inBubble(t, func(w *world) {
		until("2000-01-01 00:00:30")
		runs := map[string]int{}
		for i := range instances {
			p := w.process()
			p.skew = time.Duration(i*40)*time.Second/(instances-1) - 20*time.Second
			js := p.jobs()
			w.must(js.Every("report", time.Minute, cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
				if early := time.Until(t.Time); early > 0 {
					w.Errorf("%v ran %v before its time", t, early)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				runs[t.String()]++
				return nil
			}))
			w.start(js)
		}
		time.Sleep(time.Duration(ticks) * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(runs) != ticks {
			w.Errorf("%d ticks ran, want %d", len(runs), ticks)
		}
		for tick, n := range runs {
			if n != 1 {
				w.Errorf("%s ran %d times", tick, n)
			}
		}
	})
}

// Each instance reports an outcome for a tick. On an instance that did not run it, the outcome is
// Elsewhere without an error.
func TestOutcomes(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 3 {
			js := w.process().jobs()
			w.must(js.Add("report", "30 * * * *", cronmw.Job{OnResult: w.heard}, w.fn))
			w.start(js)
		}
		until("2000-01-01 00:59:00")
		w.wantTicks("01 00:30:00")
		if ran, other := w.of(cronmw.Ran), w.of(cronmw.Elsewhere); len(ran) != 1 || len(other) != 2 || ran[0].Err != nil || other[0].Err != nil {
			w.Errorf("ran %v, elsewhere %v", ran, other)
		}
	})
}

// A run fails. That is the outcome of the tick, and no other instance runs it, with or without
// Standby. Only a standby runs it again, if the error is marked with NoEffect. The next tick runs.
func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool
		err     error
		runs    int
	}{
		"alone": {false, errBoom, 1}, "standby": {true, errBoom, 1},
		"alone, no effect": {false, guard.NoEffect(errBoom), 1}, "standby, no effect": {true, guard.NoEffect(errBoom), 3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				for range 3 {
					js := w.process().jobs()
					w.must(js.Every("report", time.Hour, cronmw.Job{Standby: c.standby, OnResult: w.heard}, func(_ context.Context, t cronmw.Tick) error {
						w.ran(t)
						time.Sleep(time.Second)
						return c.err
					}))
					w.start(js)
				}
				until("2000-01-01 01:30:00")
				if failed := w.of(cronmw.Ran); len(failed) != c.runs || !errors.Is(failed[0].Err, errBoom) {
					w.Errorf("%v, want %d runs that failed", failed, c.runs)
				}
				until("2000-01-01 02:30:00")
				if n := len(w.of(cronmw.Ran)); n != 2*c.runs {
					w.Errorf("%d runs after two ticks, want %d", n, 2*c.runs)
				}
			})
		})
	}
}

// The handler panics. The tick has failed and does not run again, and the Result has the panic
// value and the stack. Later ticks of this job and of other jobs run.
func TestPanic(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 2 {
			js := w.process().jobs()
			w.must(js.Every("bad", time.Hour, cronmw.Job{Standby: true, OnResult: w.heard}, func(context.Context, cronmw.Tick) error { panic(errBoom) }))
			w.must(js.Every("good", time.Hour, cronmw.Job{}, w.fn))
			w.start(js)
		}
		until("2000-01-01 02:30:00")
		w.wantTicks("01 01:00:00", "01 02:00:00")
		failed := w.of(cronmw.Ran)
		if len(failed) != 2 {
			w.Fatalf("%v", failed)
		}
		var p *cronmw.PanicError
		if err := failed[0].Err; !errors.As(err, &p) || p.Value != errBoom || len(p.Stack) == 0 || !errors.Is(err, errBoom) { //nolint:errorlint // the value itself
			w.Errorf("%v", err)
		}
	})
}

// A handler runs past the next ticks. These are skipped on every instance, and each skip names the
// holder of the job. The first tick after the run runs.
// Shows: K5
func TestForbid(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:00:30")
		for i := range 3 {
			p := w.process()
			p.skew = time.Duration(i-1) * 20 * time.Second
			js := p.jobs()
			w.must(js.Every("report", time.Minute, cronmw.Job{OnResult: w.heard}, func(_ context.Context, t cronmw.Tick) error {
				w.ran(t)
				if t.Time.Equal(at("2000-01-01 00:01:00")) {
					time.Sleep(130 * time.Second)
				}
				return nil
			}))
			w.start(js)
		}
		until("2000-01-01 00:05:30")
		w.wantTicks("01 00:01:00", "01 00:04:00", "01 00:05:00")
		skipped := w.of(cronmw.Skipped)
		if len(skipped) != 2 {
			w.Fatalf("skipped %v, want two, each on one instance", skipped)
		}
		var busy *lockcore.BusyError
		if err := skipped[0].Err; !errors.As(err, &busy) || busy.Holder.Task != "report@2000-01-01T00:01:00Z" || !errors.Is(err, lockcore.ErrNotRun) {
			w.Errorf("%v", err)
		}
	})
}

// With Allow a tick runs while the run before it lasts. MaxHold bounds each run.
func TestAllow(t *testing.T) {
	inBubble(t, func(w *world) {
		p := w.process()
		p.skew = 20 * time.Second // it claims the tick early, and MaxHold begins with fn
		js := p.jobs()
		j := cronmw.Job{Overlap: cronmw.Allow, Terms: lockcore.Terms{MaxHold: 90 * time.Second}, OnResult: w.heard}
		w.must(js.Every("report", time.Minute, j, w.lasting(100*time.Second)))
		w.start(js)
		until("2000-01-01 00:02:15")
		w.wantTicks("01 00:01:00", "01 00:02:00")
		until("2000-01-01 00:02:31")
		if r := w.of(cronmw.Ran); len(r) != 1 || !errors.Is(r[0].Err, lockcore.ErrMaxHold) {
			w.Errorf("%v", r)
		}
	})
}

// MaxHold bounds a run with Forbid too, and begins with fn.
func TestForbidMaxHold(t *testing.T) {
	inBubble(t, func(w *world) {
		p := w.process()
		p.skew = 50 * time.Second
		js := p.jobs()
		j := cronmw.Job{Terms: lockcore.Terms{MaxHold: 5 * time.Second}, OnResult: w.heard}
		w.must(js.Every("report", time.Hour, j, w.lasting(time.Minute)))
		w.start(js)
		until("2000-01-01 01:00:06")
		if r := w.of(cronmw.Ran); len(r) != 1 || !errors.Is(r[0].Err, lockcore.ErrMaxHold) {
			w.Errorf("%v", r)
		}
	})
}

// The ctx of Run ends. Run claims no more ticks, waits for the handlers that run, and returns. With
// CancelOnStop the ctx of the handlers ends too.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		cancel bool
		took   time.Duration
	}{"run on": {false, 30 * time.Second}, "cancel": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				js := w.process().with(cronmw.Options{CancelOnStop: c.cancel})
				w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.lasting(time.Minute)))
				stop := w.start(js)
				until("2000-01-01 01:00:30")
				start := time.Now()
				stop()
				if took := time.Since(start); took != c.took {
					w.Errorf("Run returned after %v, want %v", took, c.took)
				}
				if r := w.of(cronmw.Ran); len(r) != 1 || (r[0].Err != nil) != c.cancel {
					w.Errorf("%v", r)
				}
				time.Sleep(3 * time.Hour)
				w.wantTicks("01 01:00:00")
			})
		})
	}
}

// An instance has claimed a tick early and stops before the time of the tick. Another instance runs
// the tick.
func TestStopBeforeTime(t *testing.T) {
	inBubble(t, func(w *world) {
		fast := w.process()
		fast.skew = 30 * time.Second
		js := fast.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
		stop := w.start(js)
		js = w.process().jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 00:59:45")
		stop()
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		w.wantOutcomes(cronmw.NotRun, cronmw.Ran)
	})
}

// The process pauses while several ticks are due. Only the latest of them is claimed.
func TestPause(t *testing.T) {
	inBubble(t, func(w *world) {
		var behind atomic.Int64 // a clock that stopped with the machine and was then set
		js := w.process().with(cronmw.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }})
		w.must(js.Every("report", 10*time.Minute, cronmw.Job{OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 00:15:30")
		behind.Store(int64(5 * time.Hour))
		until("2000-01-01 05:22:30")
		behind.Store(0)
		until("2000-01-01 05:35:30")
		w.wantTicks("01 00:10:00", "01 05:20:00", "01 05:30:00")
	})
}

// Each invalid argument causes an error with the reason and a remedy. All errors of a Job are
// reported together.
func TestAddErrors(t *testing.T) {
	inBubble(t, func(w *world) {
		js := w.process().jobs()
		w.must(js.Add("taken", "@daily", cronmw.Job{}, w.fn))
		for want, err := range map[string]error{
			"use Jobs.Every":         js.Add("a", "@every 5m", cronmw.Job{}, w.fn),
			"guard.Once":             js.Add("a", "@reboot", cronmw.Job{}, w.fn),
			"zone and nothing else":  js.Add("a", "TZ=Europe/Rome", cronmw.Job{}, w.fn),
			"bad location":           js.Add("a", "TZ=Rome 0 0 * * *", cronmw.Job{}, w.fn),
			"no tick in the next":    js.Add("a", "0 0 30 2 *", cronmw.Job{}, w.fn),
			"expected 5 to 6 fields": js.Add("a", "0 0 *", cronmw.Job{}, w.fn),
			"was added before":       js.Add("taken", "@hourly", cronmw.Job{}, w.fn),
			"1 to 128":               js.Add("", "@hourly", cronmw.Job{}, w.fn),
			"must not be nil":        js.Add("a", "@hourly", cronmw.Job{}, nil),
			"whole seconds":          js.Every("a", 1500*time.Millisecond, cronmw.Job{}, w.fn),
			"Terms.Wait":             js.Every("a", time.Hour, cronmw.Job{Terms: lockcore.Terms{Wait: time.Second}}, w.fn),
		} {
			w.wantError(err, want)
		}
		w.wantError(js.Add("a", "TZ=Europe/Rome @every 1m", cronmw.Job{}, w.fn), "use Jobs.Every")
		bad := cronmw.Job{Overlap: 7, CatchUp: 7, MaxLateness: time.Millisecond, Keep: 24 * time.Hour * 367, Terms: lockcore.Terms{Lease: 1}}
		for _, want := range []string{"Overlap", "CatchUp", "MaxLateness", "Keep", "Lease"} {
			w.wantError(bad.Validate(), want)
		}
		w.wantError(cronmw.Job{MaxLateness: time.Hour, Keep: time.Hour}.Validate(), "1h1m0s")
		stop := w.start(js)
		time.Sleep(time.Second)
		w.wantError(js.Add("b", "@daily", cronmw.Job{}, w.fn), "Run has begun")
		w.wantError(js.Run(w.Context()), "called before")
		stop()
	})
}

// robfig/cron counts @every from the start of the process. That is why Jobs refuses it.
func TestCronFact_everyIsRelative(t *testing.T) {
	s, err := cron.ParseStandard("@every 5m")
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.Next(at("2000-01-01 00:00:07")), s.Next(at("2000-01-01 00:01:00"))
	if a.Equal(b) {
		t.Error("two processes agree on the tick")
	}
}
