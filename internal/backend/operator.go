package backend

import "time"

// This file contains the requests and replies of operators.

// State is the name of the state of a key.
type State string

// The states of a key.
const (
	StateFree      State = "free"
	StateHeld      State = "held"
	StateShared    State = "shared"
	StateReserved  State = "reserved"
	StateCooling   State = "cooling"
	StateDone      State = "done"
	StateAbandoned State = "abandoned"
)

// RecordPart is the part of the record that Inspect returns.
type RecordPart uint8

// The parts of a record.
const (
	NoRecord RecordPart = iota
	WholeRecord
	RecordHead // the first 512 bytes
)

// Status is the state of a key.
type Status struct {
	State     State
	Locker    string        // of the current hold, or of a hold that expired without a release
	Holder    string        // of the current or the last hold
	GrantedAt time.Time     // of that hold, by the backend's clock; zero if there is none
	HeldFor   time.Duration // since that hold began
	Remaining time.Duration // of the lease, the reservation or the cooldown
	Lease     time.Duration // held: for how long the lease was granted or last renewed
	Token     int64         // of the last hold
	Attempt   int           // number of runs of a once key
	KeepLeft  time.Duration // done, abandoned: rest of the retention
	Queue     int           // number of processes in the remote queue
	RateFull  time.Duration // until the bucket of the rate is full
	NextTurn  time.Duration // until the rates let the first request of the queue begin; 0: none or now
	Waits     Waits         // of all these processes; one that has said nothing counts as one call, and so does each after the first MaxWaits
	Revoked   bool
	PauseLeft time.Duration // of a pause; 0: the key is not paused
	Paused    string        // its reason
	Died      bool          // free exclusive key: the last hold was abandoned
	Record    []byte        // done: the part that was requested

	Restriction Restriction // For is what is left of it; the zero value: none

	Parked       int           // number of parked entries
	OldestParked string        // the oldest entry
	ParkedFor    time.Duration // since that entry was parked for the first time

	Trigger    string        // entry of the newest trigger; empty: none, or a success covers it
	TriggerAge time.Duration // since the number of that trigger, or of a newer success; 0: none is remembered

	Weights int         // shared: sum of the weights; too large while more than 800 expired shares are not removed
	Shares  []ShareHeld // shared: at most MaxShares, those that end first
}

// Restriction bounds the requests for a key for a time: each gets the smaller of Limit and Rate and of
// its own. A Limit or Rate.N of 0 restricts nothing. Rate.Cost is 0.
type Restriction struct {
	Limit  int
	Rate   Rate
	For    time.Duration
	Reason string
}

// LimitOf returns the limit of a share. One that is heavier than the restriction gets the key when no
// other share is held or cools: otherwise it would wait until the restriction ends.
func (r Restriction) LimitOf(s Share) int {
	if r.Limit == 0 {
		return s.Limit
	}
	return min(s.Limit, max(r.Limit, s.Weight)) //planted:rules-restricted-limit
}

// MaxWaits is the maximum number of processes whose Waits Inspect reads.
const MaxWaits = 100

// MaxShares is the maximum number of shares that Inspect returns.
const MaxShares = 100

// ShareHeld is a share of a key.
type ShareHeld struct {
	Share
	Locker    string
	Holder    string
	HeldFor   time.Duration
	Remaining time.Duration
	Cooling   bool // it was released, and its weight counts for the rest of its cooldown
}

// ListRequest selects the keys that List yields.
type ListRequest struct {
	Kind        Kind   // 0: both kinds
	Match       string // glob pattern of Redis for the escaped name; empty: all keys
	Free        bool   // also yield some free keys, see Selects
	RecordHeads bool
	Pause       time.Duration // between two steps that a server performs
}

// Selects reports whether List yields a key with this status. A free key, which is not paused and whose
// rate is not in use, needs Free, and something that an operator looks for.
func (r ListRequest) Selects(s *Status) bool {
	return s.State != StateFree || s.PauseLeft > 0 || s.RateFull > 0 || r.Free && (s.Died || s.Queue > 0 || s.Parked > 0 || s.Restriction.For > 0)
}

// ListEntry is a key and its status.
type ListEntry struct {
	Kind Kind
	Name string
	Status
}

// RevokeRequest ends the hold of a key, or all its shares.
type RevokeRequest struct {
	Key    *Key
	Before int64 // only a hold of the key alone with a smaller token, and the verdict of its renewals is VerdictReplaced; 0: any
	Seen   int64 // nothing with a greater token; 0: any
}

// ClearCondition is the condition under which Clear acts.
type ClearCondition uint8

// The conditions of Clear. A held key is never cleared.
const (
	ClearAlways       ClearCondition = iota
	ClearIfSame                      // the last token is Token, and the key is done if and only if Done is true
	ClearIfUnreadable                // the data of the key cannot be read
)

// ClearRequest frees a key that is not held.
type ClearRequest struct {
	Key       *Key
	Condition ClearCondition
	Token     int64
	Done      bool
}

// ClearReply is the reply to a ClearRequest.
type ClearReply uint8

// The replies to a ClearRequest.
const (
	ClearHeld ClearReply = iota
	Cleared
	ClearChanged // the condition is not met
)

// ForceClearRequest ends the lease of the hold with this Token and Locker, if it was granted or last
// renewed at least Silent ago.
type ForceClearRequest struct {
	Key    *Key
	Token  int64  // see Status
	Locker string // see Status
	Silent time.Duration
}

// ForceClearReply is the reply to a ForceClearRequest.
type ForceClearReply struct {
	Outcome ClearReply    // ClearHeld: granted or renewed too recently; ClearChanged: the key does not have that hold
	Wait    time.Duration // ClearHeld: until Silent has passed
}
