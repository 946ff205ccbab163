package cronmw_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// Redis executes a command and its reply is lost, for each command of a run. The tick runs once.
func TestLostReply(t *testing.T) {
	for _, script := range []string{"acquire", "complete", "release"} {
		for nth := range 2 {
			t.Run(fmt.Sprint(script, nth), func(t *testing.T) {
				inBubble(t, func(w *world) {
					p := w.process()
					js := p.jobs()
					w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
					w.start(js)
					until("2000-01-01 01:30:00") // so that Redis has loaded the scripts
					other := w.process()
					other.skew = -10 * time.Second
					js = other.jobs()
					w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
					w.start(js)
					n := 0
					p.faults.LoseReply(func(r faulty.Request) bool {
						if r.Script != script {
							return false
						}
						n++
						return n == nth+1
					})
					until("2000-01-01 03:30:00")
					w.wantTicks("01 01:00:00", "01 02:00:00", "01 03:00:00")
					if n <= nth {
						w.Errorf("%d requests, so no reply was lost", n)
					}
				})
			})
		}
	}
}

// Redis is unavailable when a tick is due. The instances repeat the claim until the tick would be
// too late. If Redis is back before that, the tick runs once.
func TestRedisAway(t *testing.T) {
	for name, c := range map[string]struct {
		standby bool
		away    time.Duration
		runs    int
	}{"back in time": {false, 4 * time.Minute, 1}, "standby, back in time": {true, 4 * time.Minute, 1}, "too late": {false, 7 * time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var ps []*process
				for range 3 {
					p := w.process()
					ps = append(ps, p)
					js := p.jobs()
					w.must(js.Every("report", time.Hour, cronmw.Job{Standby: c.standby, OnResult: w.heard}, w.fn))
					w.start(js)
				}
				until("2000-01-01 00:59:00")
				for _, p := range ps {
					p.faults.Down()
				}
				time.Sleep(time.Minute + c.away)
				for _, p := range ps {
					p.faults.Heal()
				}
				until("2000-01-01 01:30:00")
				if n := len(w.ticks()); n != c.runs {
					w.Errorf("%d runs, want %d", n, c.runs)
				}
				if c.runs == 0 {
					if r := w.of(cronmw.NotRun); len(r) != 3 || !errors.Is(r[0].Err, lockcore.ErrUnavailable) || !errors.Is(r[0].Err, lockcore.ErrNotRun) {
						w.Errorf("%v", r)
					}
				}
			})
		})
	}
}

// By the clock of Redis an instance claims a tick too late, or more than a minute too early. The
// tick does not run there, whatever the instance's clock shows. The Result has the difference.
func TestClocksFarOff(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
			p := w.process()
			p.skew = skew
			js := p.jobs()
			w.must(js.Add("report", "0 * * * *", cronmw.Job{OnResult: w.heard}, w.fn))
			w.start(js)
		}
		until("2000-01-01 01:30:00")
		w.wantTicks()
		w.wantOutcomes(cronmw.Early, cronmw.Late)
		var late *cronmw.LateError
		var early *cronmw.EarlyError
		if !errors.As(w.results[0].Err, &early) || early.By.Round(time.Second) != 10*time.Minute {
			w.Error(w.results[0].Err)
		}
		if err := w.results[1].Err; !errors.As(err, &late) || late.By.Round(time.Second) != 10*time.Minute || late.Max != 5*time.Minute || !errors.Is(err, lockcore.ErrNotRun) {
			w.Error(err)
		}
	})
}

// 100 instances claim a tick one after the other, up to hours late. The tick runs once, because its
// record outlives the time in which it may begin.
func TestNoClockRunsTwice(t *testing.T) {
	inBubble(t, func(w *world) {
		for late := range 100 {
			p := w.process()
			p.skew = time.Minute - time.Duration(late)*2*time.Minute
			js := p.jobs()
			j := cronmw.Job{MaxLateness: time.Hour, Keep: time.Hour + time.Minute, OnResult: w.heard}
			w.must(js.Add("report", "0 12 * * *", j, w.fn))
			w.start(js)
		}
		until("2000-01-01 23:00:00")
		w.wantTicks("01 12:00:00")
		if n := len(w.of(cronmw.Late)); n < 60 {
			w.Errorf("%d were refused as late", n)
		}
	})
}
