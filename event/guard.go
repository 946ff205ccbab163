package event

import "time"

// NoKey is an event: a task or request had no key, or its LimitFunc returned no limit. It belongs
// to no call, see [Observer].
type NoKey struct {
	Name string // Terms.Name or its default
}

// ConflictLost is an event: a conflict used up the last attempt of a job. A worker without a
// middleware can pass the event to its Observer itself. It belongs to no call, see [Observer].
type ConflictLost struct {
	Name   string // Terms.Name or its default
	Holder Holder // of the key
}

// PayloadDiffers is an event: a call for a done key had another payload. The call returned the
// record of the first payload, and its function did not run. This package reports it, see
// OnceOptions.ReportOnly. It belongs to no call, see [Observer].
type PayloadDiffers struct {
	Name string // Terms.Name
	Key  string // raw: hash it before it leaves the process
}

// TickAbandoned is an event: the instance that ran a cron tick died, and no other instance runs the
// tick. It is reported once for each such tick. It belongs to no call, see
// [Observer].
type TickAbandoned struct {
	Name   string // Terms.Name
	Key    string // of the tick; raw: hash it before it leaves the process
	Holder Holder // the instance that died
}

// Parked is an event: a task waits for a busy key outside of its worker. It belongs to no call,
// see [Observer].
type Parked struct {
	Name   string        // Terms.Name or its default
	Kind   Kind          // of the key
	Key    string        // raw: hash it before it leaves the process
	Again  bool          // the task was parked before and has kept its place
	Before int           // tasks of the key that were parked earlier
	Count  int           // parked tasks of the key
	Oldest time.Duration // since the oldest of them was parked for the first time
	Delay  time.Duration // after which the task comes back if it is not woken
}

// RerunSkipped is an event: a task or job that had been parked was delivered again less than
// 30 s after it had completed. Its handler did not run, because a late wake may have caused the
// delivery. If an operator runs the task by hand in this time, it does not run either, because the
// two cases look the same. It belongs to no call, see
// [Observer].
type RerunSkipped struct {
	Name      string        // Terms.Name or its default
	Kind      Kind          // of the key
	Key       string        // on which the task was parked; raw: hash it before it leaves the process
	Completed time.Duration // since the task completed; for asynq a skipped run is a completion too
}

// Replaced is an event: a task ended without a run, because a newer one of its key was delivered. It
// belongs to no call, see [Observer].
type Replaced struct {
	Name string // Terms.Name or its default
	Key  string // raw: hash it before it leaves the process
}

// Unparked is an event: a task that was parked got its key, or ended without it. It belongs to no
// call, see [Observer].
type Unparked struct {
	Name   string        // Terms.Name or its default
	Kind   Kind          // of the key
	Key    string        // raw: hash it before it leaves the process
	Parked time.Duration // since the task was parked for the first time
	Count  int           // parked tasks of the key that are left
	Oldest time.Duration // since the oldest of these was parked for the first time
}
