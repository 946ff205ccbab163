package backend

import "time"

// ParkRequest parks an entry: a text that names a task outside of its worker.
type ParkRequest struct {
	Key   *Key
	Entry string
	Most  int           // maximum number of entries of the key
	Keep  time.Duration // minimum time from now for which all entries of the key are kept
	Free  bool          // park Entry also if no request has the key, because its rate is used up
}

// ParkOutcome is the result of a ParkRequest.
type ParkOutcome uint8

// The outcomes of a ParkRequest.
const (
	ParkNone ParkOutcome = iota // no request has the key, and Free is not set: Entry is not parked
	ParkFull                    // the key has Most other entries: Entry is not parked
	Parked                      // Entry is parked, and not woken
)

// ParkReply is the reply to a ParkRequest.
type ParkReply struct {
	Outcome ParkOutcome
	Before  int           // Parked: number of older entries
	Count   int           // Parked, ParkFull: number of entries of the key
	Age     time.Duration // Parked: since Entry was parked for the first time
	Oldest  time.Duration // Parked, ParkFull: since the oldest entry was parked for the first time
}

// UnparkRequest removes entries and marks other entries as woken. No other process wakes a marked
// entry for WokenTime. An entry keeps its place until it is removed.
//
// A task removes its own entry. A waker removes entries whose tasks it found not to be parked. Such
// a task may be parked again meanwhile, which removes the mark of its entry. So the waker sets
// Marked, and the entry stays. This needs a clock of the backend that is not set back.
type UnparkRequest struct {
	Key    *Key
	Remove []string
	Marked int64         // remove an entry only if it has a mark that is not newer, see UnparkReply.Marked; 0: with and without a mark
	Woken  int           // wanted number of woken entries that begin with Prefix; includes those that are woken already
	Prefix string        // of the entries that the caller can wake
	Skip   []string      // prefixes of entries that are neither woken nor counted
	Fresh  time.Duration // how long an entry counts as woken after it was marked; default and maximum: WokenTime
}

// FreshTime returns Fresh, or WokenTime if Fresh is not set or greater.
func (r *UnparkRequest) FreshTime() time.Duration {
	if r.Fresh <= 0 {
		return WokenTime
	}
	return min(r.Fresh, WokenTime)
}

// UnparkReply is the reply to an UnparkRequest.
type UnparkReply struct {
	Removed int           // number of removed entries
	Age     time.Duration // since the oldest removed entry was parked for the first time
	Wake    []string      // newly marked entries, oldest first; the caller wakes them
	Marked  int64         // when they were marked, in µs of the backend's clock
	Count   int           // number of remaining entries
	Oldest  time.Duration // since the oldest remaining entry was parked for the first time
}
