package guard

import "github.com/holdfast-go/holdfast/lockcore"

// The types below are events for a lockcore.Observer. They are in this package, not in those of the
// middlewares, so that an Observer that imports them does not link asynq or cron.

// NoKey is an event: a task or request had no key. Packages asynqmw and httpmw report it. It belongs
// to no attempt, see [lockcore.Observer].
type NoKey struct {
	Name string // Terms.Name or its default
}

// ConflictLost is an event: a conflict used up the last attempt of a job. Package asynqmw reports it.
// A worker without asynqmw can pass the event to its Observer itself. It belongs to no attempt, see
// [lockcore.Observer].
type ConflictLost struct {
	Name   string          // Terms.Name or its default
	Holder lockcore.Holder // of the key
}

// PayloadDiffers is an event: a done key was called with another payload. The call returned the
// record of the first payload, and nothing ran. This package reports it, see OnceOptions.ReportOnly.
// It belongs to no attempt, see [lockcore.Observer].
type PayloadDiffers struct {
	Name string // Terms.Name
	Key  string // raw: hash it before it leaves the process
}

// TickAbandoned is an event: the instance that ran a cron tick died, and no other instance runs the
// tick. Package cronmw reports it once for each such tick. It belongs to no attempt, see
// [lockcore.Observer].
type TickAbandoned struct {
	Name   string          // Terms.Name
	Key    string          // of the tick; raw: hash it before it leaves the process
	Holder lockcore.Holder // the instance that died
}
