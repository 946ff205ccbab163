package cronmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// The instance that runs a tick dies, without Standby. Exactly one of the remaining instances
// reports that, once: the instance that has the next tick. The next ticks may be skipped because
// the lease goes on, or because no instance runs. Then the instance that has the first tick after
// those reports it.
// Shows: K3
func TestAbandonedTickIsReported(t *testing.T) {
	for name, row := range map[string]struct {
		every   time.Duration
		overlap cronmw.Overlap
		away    time.Duration // the time without another instance
	}{
		"next tick":          {time.Hour, cronmw.Forbid, 0},
		"next tick, allow":   {time.Hour, cronmw.Allow, 0},
		"skipped for a time": {10 * time.Second, cronmw.Forbid, 0},
		"held for a time":    {20 * time.Second, cronmw.Allow, 0},
		"no instance":        {time.Hour, cronmw.Forbid, 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				first, heard := w.process(), new(locktest.Recorder)
				js := first.jobs()
				j := cronmw.Job{Overlap: row.overlap, OnResult: w.heard}
				died, over := make(chan struct{}), make(chan struct{})
				defer close(over)
				w.must(js.Every("report", row.every, cronmw.Job{Overlap: row.overlap}, func(_ context.Context, t cronmw.Tick) error {
					w.ran(t)
					first.faults.Silence()
					close(died)
					<-over
					return nil
				}))
				w.start(js)
				<-died
				time.Sleep(row.away + time.Millisecond)
				for range 3 {
					js := w.process(func(o *lockcore.Options) { o.Observer = heard }).jobs()
					w.must(js.Every("report", row.every, j, w.fn))
					w.start(js)
				}
				time.Sleep(4*row.every + 3*time.Minute)
				dead := w.ticks()[0]
				got := w.of(cronmw.Abandoned)
				if len(got) != 1 || got[0].Tick.Time.UTC().Format("02 15:04:05") != dead || !errors.Is(got[0].Err, lockcore.ErrAbandoned) {
					w.Errorf("reported %v, want the tick %s once", got, dead)
				}
				events := locktest.EventsOf[event.TickAbandoned](heard)
				if len(events) != 1 || len(got) == 1 && events[0].Key != got[0].Tick.Key() || events[0].Name != "report" || events[0].Holder.PID == 0 {
					w.Errorf("events %+v", events)
				}
			})
		})
	}
}

// A tick is not reported as abandoned if its instance lives, after any run time, or if a standby
// takes it over.
// Shows: K3
func TestTickThatIsNotAbandoned(t *testing.T) {
	for name, j := range map[string]cronmw.Job{"long run": {}, "long run beside others": {Overlap: cronmw.Allow}, "standby": {Standby: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				j.OnResult = w.heard
				for range 3 {
					p := w.process()
					js := p.jobs()
					w.must(js.Every("report", 10*time.Second, j, func(ctx context.Context, t cronmw.Tick) error {
						if w.ran(t); j.Standby && len(w.ticks()) == 1 {
							p.faults.Silence()
							time.Sleep(6 * time.Minute) // longer than this test
						}
						return w.lasting(time.Minute)(ctx, t)
					}))
					w.start(js)
				}
				time.Sleep(5 * time.Minute)
				if got := w.of(cronmw.Abandoned); len(got) != 0 {
					w.Errorf("reported %v", got)
				}
			})
		})
	}
}
