package cronmw

import "time"

// Tick is one nominal time of a job: the time in the schedule, not the time at which fn runs. fn
// gets it even if its goroutine starts late.
type Tick struct {
	Name string    // name of the job
	Time time.Time // nominal time in whole seconds, in the zone of the schedule
}

// Key returns the once key of the tick, always in UTC: cron:report@2026-03-08T07:30:00Z. Use it for
// guard.Token, guard.Attempt and idempotency.Lookup. Pass it to downstream systems that must
// recognize a repeated tick.
//
// With a scheduler whose tasks know their nominal time, the key gives the central step of this
// package:
//
//	o := guard.OnceOptions{Mode: guard.AtMostOnce}
//	guard.Once(ctx, locks, cronmw.Tick{Name: "report", Time: t}.Key(), o, fn)
//
// This does less than Jobs. fn runs even if it is called early or late, and even next to the
// previous run. A tick that is due while Redis is unavailable is not requested again.
func (t Tick) Key() string { return t.OverlapKey() + "@" + t.Time.UTC().Format(time.RFC3339) }

// OverlapKey returns the exclusive key that a run of the job holds under Forbid: cron:report.
func (t Tick) OverlapKey() string { return prefix + t.Name }

// String returns the name of the tick for logs: report@2026-03-08T07:30:00Z.
func (t Tick) String() string { return t.Key()[len(prefix):] }

const prefix = "cron:"
