package cronmw_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// The clocks of a zone change, on three instances whose own clocks differ. A repeated hour has two
// ticks, or one with SkipRepeated. A skipped hour has none. No tick runs twice.
// Shows: K13
func TestClockChange(t *testing.T) {
	const newYork = "CRON_TZ=America/New_York "
	for name, c := range map[string]struct {
		spec, day    string // midnight in New York, as UTC
		hours        int
		skipRepeated bool
		ticks        []string // UTC
	}{
		"spring, before":           {"30 1 * * *", "2000-04-02 05:00:00", 23, false, []string{"02 06:30:00"}},
		"spring, left out":         {"30 2 * * *", "2000-04-02 05:00:00", 23, false, nil},
		"spring, hourly":           {"0 0-4 * * *", "2000-04-02 05:00:00", 23, false, []string{"02 05:00:00", "02 06:00:00", "02 07:00:00", "02 08:00:00"}},
		"autumn, repeated":         {"30 1 * * *", "2000-10-29 04:00:00", 25, false, []string{"29 05:30:00", "29 06:30:00"}},
		"autumn, the first of two": {"30 1 * * *", "2000-10-29 04:00:00", 25, true, []string{"29 05:30:00"}},
		"autumn, after":            {"30 2 * * *", "2000-10-29 04:00:00", 25, true, []string{"29 07:30:00"}},
		"autumn, hourly":           {"0 0-2 * * *", "2000-10-29 04:00:00", 25, false, []string{"29 04:00:00", "29 05:00:00", "29 06:00:00", "29 07:00:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				day := at(c.day)
				time.Sleep(time.Until(day.Add(-30 * time.Second)))
				for i := range 3 {
					p := w.process()
					p.skew = time.Duration(i-1) * 20 * time.Second
					js := p.jobs()
					w.must(js.Add("report", newYork+c.spec, cronmw.Job{SkipRepeated: c.skipRepeated}, func(_ context.Context, t cronmw.Tick) error {
						if t.Time.Location().String() != "America/New_York" {
							w.Errorf("the tick is in the zone %v", t.Time.Location())
						}
						w.ran(t)
						return nil
					}))
					w.start(js)
				}
				time.Sleep(time.Until(day.Add(time.Duration(min(c.hours, testlevel.Pick(t, 5, 5, 25)))*time.Hour - time.Minute)))
				w.wantTicks(c.ticks...)
			})
		})
	}
}

// Any white space may separate a zone from the fields, for Jobs and for a cron that you already have.
// robfig/cron itself takes all up to the first space for the zone, and panics if there is none.
func TestZoneBeforeTab(t *testing.T) {
	inBubble(t, func(w *world) {
		js := w.process().jobs()
		for i, spec := range []string{"TZ=Asia/Tokyo\t0 12 * * *", "CRON_TZ=Asia/Tokyo\t 0\t12 * * *", "TZ=Asia/Tokyo\t@daily"} {
			w.must(js.Add(fmt.Sprint("job", i), spec, cronmw.Job{}, w.fn))
			c := w.cron()
			w.add(c, spec, cronmw.Job{}, w.fn) // the first two have the same ticks
			w.run(c)
		}
		w.wantError(js.Add("a", "TZ=Asia/Tokyo\t@every 5m", cronmw.Job{}, w.fn), "use Jobs.Every")
		w.wantError(js.Add("a", "TZ=Asia/Tokyo\t", cronmw.Job{}, w.fn), "zone and nothing else")
		w.start(js)
		until("2000-01-01 03:01:00")
		w.wantTicks("01 03:00:00", "01 03:00:00", "01 03:00:00")
		until("2000-01-01 15:01:00")
		w.wantTicks("01 03:00:00", "01 03:00:00", "01 03:00:00", "01 15:00:00", "01 15:00:00")
	})
}

// A spec without a zone is in UTC, or in Options.Location.
func TestLocation(t *testing.T) {
	inBubble(t, func(w *world) {
		tokyo := time.FixedZone("Tokyo", 9*3600)
		for _, o := range []cronmw.Options{{}, {Location: tokyo}} {
			js := w.process().with(o)
			w.must(js.Add("at noon", "0 12 * * *", cronmw.Job{}, w.fn))
			w.must(js.Add("seconds", "30 15 20 1 1 *", cronmw.Job{}, w.fn))
			w.start(js)
		}
		until("2000-01-02 00:00:00")
		w.wantTicks("01 03:00:00", "01 11:15:30", "01 12:00:00", "01 20:15:30")
	})
}

// The ticks of Every are the multiples of the interval since the epoch, whenever an instance
// starts.
func TestEveryAligned(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, start := range []string{"2000-01-01 00:00:05", "2000-01-01 00:03:20"} {
			until(start)
			js := w.process().jobs()
			w.must(js.Every("report", 7*time.Minute, cronmw.Job{}, w.fn))
			w.start(js)
		}
		until("2000-01-01 00:20:00")
		w.wantTicks("01 00:04:00", "01 00:11:00", "01 00:18:00") // 946,684,800 s of the epoch are 3 min more than a multiple of 7
	})
}
