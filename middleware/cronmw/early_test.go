package cronmw_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// Three instances claim a tick too early. The instance that has it stops before the time of the
// tick. The others found the tick taken, and claim it again at its time.
// Shows: K9
func TestEarlyStops(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:30:00")
		var stops []func()
		for i := range 3 {
			p := w.process()
			p.skew = 30*time.Second - time.Duration(i)*10*time.Second
			js := p.jobs()
			w.must(js.Every("report", time.Hour, cronmw.Job{OnResult: w.heard}, w.fn))
			stops = append(stops, w.start(js))
		}
		until("2000-01-01 00:59:52")
		stops[0]()
		until("2000-01-01 01:30:00")
		w.wantTicks("01 01:00:00")
		if len(w.results) != 3 || len(w.of(cronmw.NotRun)) != 1 || len(w.of(cronmw.Elsewhere)) != 1 {
			w.Errorf("%v", w.results)
		}
	})
}

// An instance that finds a tick taken before its time claims it again at its time, with one more
// command per tick. An instance with a correct clock sends one command per tick. Each instance
// reads the time of Redis once an hour.
// Shows: K9
func TestEarlyCosts(t *testing.T) {
	inBubble(t, func(w *world) {
		until("2000-01-01 00:00:30")
		winner := w.process()
		winner.skew = 25 * time.Second
		js := winner.jobs()
		w.must(js.Every("report", time.Minute, cronmw.Job{}, w.lasting(10*time.Second)))
		w.start(js)
		count := func(skew time.Duration) *atomic.Int64 {
			p := w.process()
			p.skew = skew
			n := new(atomic.Int64)
			p.faults.LoseReply(func(r faulty.Request) bool {
				if r.About("cron:report@") {
					n.Add(1)
				}
				return false
			})
			js := p.jobs()
			w.must(js.Every("report", time.Minute, cronmw.Job{}, w.fn))
			w.start(js)
			return n
		}
		early, right := count(20*time.Second), count(-time.Second)
		until("2000-01-01 00:30:30")
		if got := early.Load(); got < 2*30+1 || got > 2*30+2 { // a script is sent again if Redis has not loaded it
			w.Errorf("%d commands of an early instance for 30 ticks, want 61", got)
		}
		if got := right.Load(); got != 30+1 {
			w.Errorf("%d commands of an instance with a correct clock for 30 ticks, want 31", got)
		}
		if n := len(w.ticks()); n != 30 {
			w.Errorf("%d runs, want 30", n)
		}
	})
}
