package cronmw_test

import (
	"context"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// For any argument the schedule's Next returns the next tick that the wall clock of the zone shows.
// The test compares it with a search of each minute, also at changes of half an hour, and where
// midnight comes twice.
// Shows: K11
func TestNextAroundChanges(t *testing.T) {
	inBubble(t, func(w *world) {
		for spec, fits := range map[string]func(time.Time) bool{
			"0 0 * * *": func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 },
			"0 6 * * *": func(t time.Time) bool { return t.Hour() == 6 && t.Minute() == 0 },
			"0 0 * * 1": func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 && t.Weekday() == time.Monday },
		} {
			for _, zone := range []string{"Australia/Lord_Howe", "America/St_Johns", "America/New_York", "America/Havana", "Europe/Berlin"} {
				loc, err := time.LoadLocation(zone)
				if err != nil {
					t.Skip(err)
				}
				c := cron.New(cron.WithLocation(loc))
				s := c.Entry(w.add(c, spec, cronmw.Job{}, w.fn)).Schedule
				_, change := time.Date(2009, 1, 1, 0, 0, 0, 0, loc).ZoneBounds()
				for range 6 {
					w.wantNext(zone+" "+spec, s, fits, change)
					_, change = change.ZoneBounds()
				}
			}
		}
	})
}

// wantNext calls s.Next for each half hour of the day before change and of the day after it.
func (w *world) wantNext(name string, s cron.Schedule, fits func(time.Time) bool, change time.Time) {
	w.Helper()
	want := change.Add(9 * 24 * time.Hour).Truncate(time.Minute)
	var last time.Time // the tick after the last one that was wanted, because no tick comes twice
	for at := want; at.After(change.Add(-25 * time.Hour)); at = at.Add(-time.Minute) {
		if fits(at) {
			want, last = at, want
		}
		p := at.Add(-time.Second)
		if last.IsZero() || p.Minute()%30 != 29 || p.Sub(change) > 25*time.Hour {
			continue
		}
		if got := s.Next(p); !got.Equal(want) {
			w.Errorf("%s: after %v comes %v, want %v", name, p, got, want)
		}
	}
}

// A daily job runs on the day on which the clocks of Lord Howe go back by half an hour, and on the
// day after.
// Shows: K11
func TestAddToHalfHour(t *testing.T) {
	inBubble(t, func(w *world) {
		loc, err := time.LoadLocation("Australia/Lord_Howe")
		if err != nil {
			t.Skip(err)
		}
		time.Sleep(time.Until(time.Date(2000, 3, 24, 12, 0, 0, 0, loc)))
		c := cron.New(cron.WithLocation(loc))
		w.add(c, "0 0 * * *", cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
			w.ran(cronmw.Tick{Time: t.Time.Add(10*time.Hour + 30*time.Minute)}) // the time that the zone's clock shows in winter
			return nil
		})
		w.run(c)
		time.Sleep(4 * 24 * time.Hour)
		w.wantTicks("24 23:30:00", "25 23:30:00", "27 00:00:00", "28 00:00:00")
	})
}
