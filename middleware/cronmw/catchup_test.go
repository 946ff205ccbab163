package cronmw_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// deploy starts three instances with a job, whose clocks differ by 20 s each. stop stops all of
// them.
func (w *world) deploy(spec string, j cronmw.Job) (stop func()) {
	w.Helper()
	var stops []func()
	for i := range 3 {
		p := w.process()
		p.skew = time.Duration(i-1) * 20 * time.Second
		js := p.jobs()
		w.must(js.Add("report", spec, j, w.fn))
		stops = append(stops, w.start(js))
	}
	return func() {
		for _, s := range stops {
			s()
		}
	}
}

// Ticks are due while no instance runs. With CatchUpLatest the latest of them runs once, as soon as
// an instance starts.
func TestCatchUp(t *testing.T) {
	for name, c := range map[string]struct {
		catchUp cronmw.CatchUp
		standby bool
		gone    string // the time at which instances start again
		ticks   []string
	}{
		"none":             {cronmw.CatchUpNone, false, "2000-01-02 01:30:00", nil},
		"latest":           {cronmw.CatchUpLatest, false, "2000-01-02 01:30:00", []string{"02 00:00:00"}},
		"latest of three":  {cronmw.CatchUpLatest, false, "2000-01-04 23:30:00", []string{"04 00:00:00"}},
		"latest, standby":  {cronmw.CatchUpLatest, true, "2000-01-04 23:30:00", []string{"04 00:00:00"}},
		"nothing was due":  {cronmw.CatchUpLatest, false, "2000-01-01 23:30:00", nil},
		"half a year away": {cronmw.CatchUpLatest, false, "2000-07-01 09:00:00", []string{"01 00:00:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				until("2000-01-01 10:00:00")
				j := cronmw.Job{CatchUp: c.catchUp, Standby: c.standby}
				stop := w.deploy("@daily", j)
				until("2000-01-01 23:00:00")
				stop()
				w.wantTicks()
				until(c.gone)
				w.deploy("@daily", j)()
				w.deploy("@daily", j)
				time.Sleep(2 * time.Minute)
				w.wantTicks(c.ticks...)
			})
		})
	}
}

// A first deployment, or one with a new spec, has missed no tick. Ticks that were due before the
// spec was deployed do not run.
func TestCatchUpFirstDeploy(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{CatchUp: cronmw.CatchUpLatest}
		until("2000-01-01 10:00:00")
		stop := w.deploy("0 9 * * *", j)
		time.Sleep(20 * time.Minute)
		stop()
		stop = w.deploy("0 8 * * *", j)
		time.Sleep(20 * time.Minute)
		stop()
		w.wantTicks()
	})
}

// Instances restart after a tick that ran. No tick was missed, so nothing runs.
func TestCatchUpNothingMissed(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{CatchUp: cronmw.CatchUpLatest}
		stop := w.deploy("0 6 * * *", j)
		until("2000-01-01 06:30:00")
		stop()
		for range 5 {
			time.Sleep(3 * time.Hour)
			w.deploy("0 6 * * *", j)()
		}
		w.wantTicks("01 06:00:00")
	})
}

// A job runs for longer than Redis keeps the note of its first deployment. The note is renewed, so
// after an outage CatchUp still works.
func TestCatchUpRemembers(t *testing.T) {
	testlevel.Campaign(t)
	inBubble(t, func(w *world) {
		j := cronmw.Job{CatchUp: cronmw.CatchUpLatest}
		js := w.process().jobs()
		w.must(js.Add("report", "@weekly", j, w.fn))
		stop := w.start(js)
		until("2001-03-01 00:00:00")
		stop()
		n := len(w.ticks())
		until("2001-09-01 00:00:00") // the first notes have expired
		w.deploy("@weekly", j)
		time.Sleep(2 * time.Minute)
		if got := w.ticks()[n:]; len(got) != 1 || got[0] != "26 00:00:00" {
			w.Errorf("%v", got)
		}
	})
}

// Redis is unavailable when the instances start again, or Redis was the outage. The missed tick
// runs when Redis is available.
func TestCatchUpRedisAway(t *testing.T) {
	inBubble(t, func(w *world) {
		j := cronmw.Job{CatchUp: cronmw.CatchUpLatest, OnResult: w.heard}
		stop := w.deploy("0 6 * * *", j)
		time.Sleep(time.Minute)
		stop()
		until("2000-01-01 09:00:00")
		p := w.process()
		p.faults.Down()
		js := p.jobs()
		w.must(js.Add("report", "0 6 * * *", j, w.fn))
		w.start(js)
		until("2000-01-01 10:00:00")
		p.faults.Heal()
		until("2000-01-01 10:01:00")
		w.wantTicks("01 06:00:00")
		until("2000-01-02 05:59:00")
		p.faults.Down()
		until("2000-01-02 08:00:00")
		p.faults.Heal()
		until("2000-01-02 08:01:00")
		w.wantTicks("01 06:00:00", "02 06:00:00")
	})
}

// An instance dies during a tick that it has begun. CatchUp runs the tick again with Standby, and
// not without.
func TestCatchUpAfterCrash(t *testing.T) {
	for name, standby := range map[string]bool{"alone": false, "standby": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				j := cronmw.Job{CatchUp: cronmw.CatchUpLatest, Standby: standby, OnResult: w.heard}
				p := w.process()
				js := p.jobs()
				w.must(js.Add("report", "0 6 * * *", j, w.lasting(time.Hour)))
				w.start(js)
				until("2000-01-01 06:10:00")
				p.faults.Silence()
				until("2000-01-01 09:00:00")
				w.deploy("0 6 * * *", j)
				time.Sleep(time.Minute)
				if tookOver := len(w.of(cronmw.TookOver)) == 1; tookOver != standby {
					w.Errorf("outcomes %v", w.all())
				}
				if r := w.of(cronmw.NotRun); !standby && (len(r) == 0 || !errors.Is(r[0].Err, lockcore.ErrAbandoned)) {
					w.Errorf("outcomes %v", r)
				}
			})
		})
	}
}

// CatchUp is introduced while instances of the old release run. Instances of the new release do not
// catch up a tick that an old one ran.
// Shows: K12
func TestCatchUpRollout(t *testing.T) {
	inBubble(t, func(w *world) {
		old, canary := w.process(), w.process()
		canary.skew = -time.Second
		js := old.jobs()
		w.must(js.Add("report", "0 7 * * *", cronmw.Job{}, w.fn))
		w.start(js)
		until("2000-01-01 06:00:00")
		js = canary.jobs()
		w.must(js.Add("report", "0 7 * * *", cronmw.Job{CatchUp: cronmw.CatchUpLatest}, w.fn))
		w.start(js)()
		js = canary.jobs()
		w.must(js.Add("report", "0 7 * * *", cronmw.Job{CatchUp: cronmw.CatchUpLatest}, w.fn))
		until("2000-01-01 12:00:00")
		w.start(js)
		until("2000-01-01 12:10:00")
		w.wantTicks("01 07:00:00")
	})
}
