package backend

import "time"

// TriggerRequest orders the triggers of a key. A trigger is a task of which only the newest needs to
// run. It has a number: the time of its first note in µs of the backend's clock, or more, so that
// numbers grow from trigger to trigger, also if the clock is set back. It keeps its number until it
// ends. A trigger that has ended is remembered for TriggerTTL.
type TriggerRequest struct {
	Key    *Key
	Op     TriggerOp
	Entry  string        // names the task, and has a slash; empty: no task, of TriggerRead, and of TriggerDone for a function
	Number int64         // TriggerDone, TriggerDrop: of the trigger
	Fresh  bool          // TriggerNote: the task was never retried
	Ends   bool          // TriggerDone, TriggerDrop: the trigger ends
	Keep   time.Duration // how long triggers that have not ended are kept
	Most   int           // maximum number of triggers; a further one replaces the oldest, at first one that has ended
}

// TriggerOp is what a TriggerRequest does.
type TriggerOp uint8

// The operations.
const (
	TriggerRead TriggerOp = iota // only return Succeeded and Now
	TriggerNote                  // give the trigger a number, unless it has one
	TriggerDone                  // record the success of a run with this Number
	TriggerDrop                  // end the trigger, if it has this Number
)

// TriggerOutcome is the result of a TriggerRequest.
type TriggerOutcome uint8

// The outcomes.
const (
	TriggerOld    TriggerOutcome = iota // a newer trigger was noted, a newer run has succeeded, or this trigger has ended
	TriggerNewest                       // the trigger is the newest; and of all requests but TriggerNote
	TriggerAgain                        // a trigger with this entry has just ended: ask again after Wait
)

// TriggerReply is the reply to a TriggerRequest.
type TriggerReply struct {
	Outcome   TriggerOutcome
	Number    int64         // of a note: of the trigger; 0 if it has ended
	First     int64         // TriggerNewest of a note: number of the first trigger that no success covers
	Now       int64         // TriggerNewest: the time in µs of the backend's clock
	Succeeded int64         // TriggerRead: the greatest number of a success; 0: none
	Older     int           // TriggerNewest of a note that gave the number: how many older triggers have not ended, at most MaxOlder
	Wait      time.Duration // TriggerAgain
}

const (
	// TriggerTTL is how long a trigger that has ended is remembered. If it were forgotten, its task
	// would be the newest if it is delivered again.
	TriggerTTL = time.Hour
	// MaxOlder is the greatest TriggerReply.Older.
	MaxOlder = 64
)
