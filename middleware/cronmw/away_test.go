package cronmw_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// Redis becomes unavailable between the two commands that begin a tick, or just before them, for
// less or more than a lease. It is back in time, and the tick runs once. An instance does not
// report its own hold as that of another instance.
// Shows: K6
func TestRedisAwayInBetween(t *testing.T) {
	for name, c := range map[string]struct {
		skew, from, step time.Duration // skew of the instance's clock; the shortest outage, from 2 s before the tick, and the step between outages
		instances        int
		standby          bool
	}{
		"early":            {5 * time.Second, 2500 * time.Millisecond, 370 * time.Millisecond, 1, false},
		"early, two":       {5 * time.Second, 2500 * time.Millisecond, 970 * time.Millisecond, 2, false},
		"early, standby":   {5 * time.Second, 2500 * time.Millisecond, 970 * time.Millisecond, 2, true},
		"early, a lease":   {5 * time.Second, 27 * time.Second, 310 * time.Millisecond, 1, false},
		"very early":       {40 * time.Second, 45 * time.Second, 15 * time.Second, 1, false},
		"early, long":      {5 * time.Second, 40 * time.Second, 20 * time.Second, 1, false},
		"on time, a lease": {0, 27 * time.Second, 710 * time.Millisecond, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range testlevel.Pick(t, 3, 12, 12) {
				inBubble(t, func(w *world) {
					until("2000-01-01 00:30:00")
					var ps []*process
					for i := range c.instances {
						p := w.process()
						p.skew = c.skew + time.Duration(i)*10*time.Millisecond
						js := p.jobs()
						w.must(js.Every("report", time.Hour, cronmw.Job{Standby: c.standby, OnResult: w.heard}, w.fn))
						w.start(js)
						ps = append(ps, p)
					}
					until("2000-01-01 00:59:58")
					for _, p := range ps {
						p.faults.Down()
					}
					away := c.from + time.Duration(i)*c.step
					time.Sleep(away)
					for _, p := range ps {
						p.faults.Heal()
					}
					until("2000-01-01 01:30:00")
					if n := len(w.ticks()); n != 1 {
						w.Errorf("%d runs after %v: %v", n, away, w.results)
					}
				})
			}
		})
	}
}

// Redis grants a key, the reply is lost, and Redis is then unavailable for a while. Afterwards its
// own earlier request holds the key. The tick runs once.
// Shows: K6
func TestGrantedUnheard(t *testing.T) {
	for nth := range 2 { // the key of the tick, then the key of the job
		for i := range 12 {
			inBubble(t, func(w *world) {
				p := w.process()
				js := p.jobs()
				w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
				w.start(js)
				until("2000-01-01 01:30:00") // so that Redis has loaded the scripts
				n := 0
				away := make(chan bool, 1)
				p.faults.LoseReply(func(r faulty.Request) bool {
					if r.Script == "acquire" {
						n++
					}
					if r.Script == "acquire" && n == nth+1 {
						away <- true
						return true
					}
					return false
				})
				<-away
				p.faults.Down()
				for range 3 { // the withdrawal of the grant is late
					p.faults.LoseRequest(func(r faulty.Request) bool { return r.Script != "acquire" && r.About("cron:report") })
				}
				time.Sleep(time.Duration(2000+i*370) * time.Millisecond)
				p.faults.Heal()
				until("2000-01-01 02:30:00")
				if w.wantTicks("01 01:00:00", "01 02:00:00"); w.Failed() {
					w.Log(fmt.Sprint(nth, i, w.results))
				}
			})
		}
	}
}

// An instance takes over a tick and cannot begin, because Redis is unavailable for longer than a
// lease. The tick is still abandoned, because the first instance had begun it. Without Standby it
// does not run again.
func TestAwayKeepsAbandoned(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		first := w.process()
		first.skew = 10 * time.Second
		js := first.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
			w.ran(t)
			first.faults.Silence()
			time.Sleep(time.Hour)
			return nil
		}))
		w.start(js)
		slow := w.process()
		slow.skew = -time.Minute
		js = slow.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 01:00:59")
		slow.faults.Down()
		until("2000-01-01 01:02:00")
		slow.faults.Heal()
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		w.wantOutcomes(cronmw.NotRun)
	})
}

// An instance claims the tick before its time, and loses the key while it waits, because Redis is
// unavailable. The tick runs once when Redis is back.
// Shows: K6
func TestAwayWhileEarly(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		p := w.process()
		p.skew = 55 * time.Second
		js := p.jobs()
		w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
		w.start(js)
		until("2000-01-01 00:59:10")
		p.faults.Down()
		until("2000-01-01 01:00:20")
		p.faults.Heal()
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		w.wantOutcomes(cronmw.Ran)
	})
}
