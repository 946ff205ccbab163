package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// The instance that runs a tick becomes silent during the run. Exactly one of the others takes the
// tick over, within a lease and 4 s, and all others report Elsewhere. MaxWaiting of the Lockers
// does not keep a standby from waiting.
// Shows: K2
func TestStandby(t *testing.T) {
	inBubble(t, func(w *world) {
		var began []time.Time
		for range 5 {
			p := w.process(func(o *lockcore.Options) { o.Terms.MaxWaiting = 1 })
			js := p.jobs()
			w.must(js.Every("report", time.Hour, cronmw.Job{Standby: true, OnResult: w.heard}, func(ctx context.Context, t cronmw.Tick) error {
				w.ran(t)
				w.mu.Lock()
				began = append(began, time.Now())
				runs := len(began)
				w.mu.Unlock()
				n, tookOver := guard.Attempt(ctx, t.Key())
				if runs == 1 {
					time.Sleep(10 * time.Minute)
					p.faults.Silence() // its releases and renewals do not arrive
					time.Sleep(time.Hour)
					return nil
				}
				if runs == 2 && (n != 2 || !tookOver) {
					w.Errorf("attempt %d, took over %v", n, tookOver)
				}
				time.Sleep(time.Minute)
				return nil
			}))
			w.start(js)
		}
		until("2000-01-01 01:50:00")
		w.wantTicks("01 01:00:00", "01 01:00:00")
		if len(w.of(cronmw.TookOver)) != 1 || len(w.of(cronmw.Elsewhere)) != 3 {
			w.Errorf("outcomes %v", w.all())
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(began) != 2 || began[1].Sub(began[0]) > 10*time.Minute+34*time.Second {
			w.Errorf("taken over at %v", began)
		}
	})
}

// The instance that dies claimed the tick before its time, so the key of the job expires after that
// of the tick. The standby that takes over waits for both.
func TestStandbyAfterEarly(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		first := w.process()
		first.skew = 5 * time.Second
		js := first.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{Standby: true}, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			time.Sleep(time.Second)
			first.faults.Silence()
			time.Sleep(time.Hour)
			return nil
		}))
		w.start(js)
		js = w.process().jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{Standby: true, OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00", "01 01:00:00")
		w.wantOutcomes(cronmw.TookOver)
	})
}

// The instance of a tick dies, without Standby. The tick does not run again. An instance whose
// clock is slow finds it abandoned, and reports that.
// Shows: K2
func TestNoStandby(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		first := w.process()
		js := first.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			first.faults.Silence()
			time.Sleep(time.Hour)
			return nil
		}))
		w.start(js)
		slow := w.process()
		slow.skew = -3 * time.Minute
		js = slow.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		if r := w.of(cronmw.NotRun); len(r) != 1 || !errors.Is(r[0].Err, lockcore.ErrAbandoned) {
			w.Errorf("%v", w.results)
		}
	})
}

// A run that ends because of a shutdown has not failed: a standby runs the tick again. Without
// Standby it has failed.
// Shows: K7
func TestCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool
		stop    string
		runs    int
	}{"standby": {true, "2000-01-01 01:04:00", 2}, "standby, late": {true, "2000-01-01 01:08:00", 2}, "alone": {false, "2000-01-01 01:05:00", 1}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				j := cronmw.Job{Standby: c.standby, OnResult: w.heard}
				first := w.process().with(cronmw.Options{CancelOnStop: true})
				w.must(first.Every("report", time.Hour, j, w.lasting(10*time.Minute)))
				stop := w.start(first)
				until("2000-01-01 00:30:00")
				slow := w.process()
				slow.skew = -time.Second
				second := slow.jobs()
				w.must(second.Every("report", time.Hour, j, w.lasting(time.Minute)))
				w.start(second)
				until(c.stop)
				stop()
				until("2000-01-01 01:30:00")
				if n := len(w.ticks()); n != c.runs {
					w.Errorf("%d runs, want %d; %v", n, c.runs, w.results)
				}
			})
		})
	}
}

// A run is lost, or has no effect, after MaxLateness. A standby runs the tick again, because it
// began to wait in time.
// Shows: K7
func TestStandbyLate(t *testing.T) {
	for name, c := range map[string]struct {
		err  error // of the first run, after 10 min; nil: its lease is lost
		want cronmw.Outcome
	}{"lost": {nil, cronmw.TookOver}, "no effect": {guard.NoEffect(errBoom), cronmw.Ran}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				j := cronmw.Job{Standby: true, OnResult: w.heard}
				w.pair(j, cronmw.Options{}, func(ctx context.Context, t cronmw.Tick) error {
					if w.ran(t); len(w.ticks()) > 1 {
						time.Sleep(time.Second) // so that the results arrive in this order
						return nil
					}
					time.Sleep(10 * time.Minute)
					if c.err == nil {
						locktest.Lose(ctx)
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return c.err
				})
				until("2000-01-01 01:30:00")
				w.wantOutcomes(cronmw.Ran, c.want)
			})
		})
	}
}

// Five instances claim a tick too late at the same time. The first one refuses it, and the others
// do not run it because of that.
// Shows: K7
func TestStandbyAllLate(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		for range 5 {
			p := w.process()
			p.skew = -10 * time.Minute
			p.faults.Delay(time.Millisecond) // so that the claims overlap
			js := p.jobs()
			w.must(js.Every("report", time.Hour, cronmw.Job{Standby: true, OnResult: w.heard}, w.fn))
			w.start(js)
		}
		until("2000-01-01 01:30:00")
		w.wantTicks()
		if n := len(w.of(cronmw.Late)); n != 5 {
			w.Errorf("%v", w.results)
		}
	})
}

// A standby that waits is shut down. It stops at once.
func TestStandbyStops(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.process().jobs()
		w.must(first.Every("report", time.Hour, cronmw.Job{Standby: true}, w.lasting(20*time.Minute)))
		w.start(first)
		until("2000-01-01 01:00:01")
		slow := w.process()
		slow.skew = -time.Minute
		second := slow.jobs()
		w.must(second.Every("report", time.Hour, cronmw.Job{Standby: true, OnResult: w.heard}, w.fn))
		stop := w.start(second)
		until("2000-01-01 01:05:00")
		start := time.Now()
		stop()
		if took := time.Since(start); took > 0 {
			w.Errorf("it took %v", took)
		}
		w.wantTicks("01 01:00:00")
	})
}

// idempotency.Lookup returns the ending of a tick by its key: done or failed.
func TestLookup(t *testing.T) {
	inBubble(t, func(w *world) {
		p := w.process()
		js := p.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{Keep: 24 * time.Hour}, func(_ context.Context, t cronmw.Tick) error {
			if t.Time.Hour() == 2 {
				return errBoom
			}
			return nil
		}))
		w.start(js)
		until("2000-01-01 02:30:00")
		for hour, want := range map[string]idempotency.Ending{"01": idempotency.Done, "02": idempotency.Failed} {
			tick := cronmw.Tick{Name: "report", Time: at("2000-01-01 " + hour + ":00:00")}
			e, err := idempotency.Lookup(w.Context(), p.locks, tick.Key())
			if err != nil || e.Content.Ending != want {
				w.Errorf("%s: %+v, %v", tick, e.Content, err)
			}
		}
	})
}
