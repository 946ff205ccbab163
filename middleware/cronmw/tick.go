package cronmw

import "time"

// Tick is one nominal time of a job: when the schedule says that it runs, not when it does.
type Tick struct {
	Name string    // of the job
	Time time.Time // whole seconds, in the zone of the schedule
}

// Key is the once key of the tick, for guard.Token, guard.Attempt and idempotency.Lookup: cron:report@2026-03-08T07:30:00Z,
// always in UTC. What is passed downstream to recognize a repeated tick is this key too.
func (t Tick) Key() string { return t.OverlapKey() + "@" + t.Time.UTC().Format(time.RFC3339) }

// OverlapKey is the exclusive key that a run of the job holds under Forbid: cron:report.
func (t Tick) OverlapKey() string { return prefix + t.Name }

// String names the tick to people: report@2026-03-08T07:30:00Z.
func (t Tick) String() string { return t.Key()[len(prefix):] }

const prefix = "cron:"
