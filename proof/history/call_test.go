package history_test

import (
	"fmt"
	"time"
)

// what a worker did.
type what uint8

const (
	acquire  what = iota // and waited
	try                  // NoWait
	claim                // of a once key, and waited
	enter                // once more, in the hold's own ctx
	extend               // the lease
	leave                // Release, of the hold or of a nested run
	complete             // a once key
	revoke               // the hold of any worker
	lose                 // no call: the hold's ctx was seen canceled with ErrLost
)

// answer is the result of a call.
type answer uint8

const (
	yes     answer = iota // granted, entered, extended, left, completed, revoked
	busy                  // refused
	record                // of a once key that is done
	revoked               // the lease had been taken away
	lost                  // the lease had run out
	gone                  // the caller's own ctx ended: no effect
	unknown               // Redis did not answer
)

// operation is one call. The clock is that of the run; a call that may have its effect later returns at
// never.
type operation struct {
	call, ret   int64
	token, prev int64 // granted, entered: the token, and of a grant the one before it in the history of the key
	key         int32
	hold        int32 // whose call it is, from 1; 0 of one that was not granted
	by          int32 // of a record: the hold that completed
	attempt     int32 // of a once key
	value       int64 // of the register of the key: what a grant read, and what it is at the end of the hold
	worker      int16
	what        what
	answer      answer
	shared      bool // a share, or the end of one
	joins       bool // of a share that was granted: another one has the same token
	inLine      bool // busy: another call waited at some moment of this one, so that the key need not be held
}

const never = int64(1) << 62

func (e *operation) granted() bool { return e.what <= claim && e.answer == yes }

func (e *operation) String() string {
	ret := "never"
	if e.ret != never {
		ret = time.Duration(e.ret).String()
	}
	return fmt.Sprintf("[%v %s] worker %d hold %d: %s %s token %d (after %d) attempt %d by %d in line %v, shared %v value %d",
		time.Duration(e.call), ret, e.worker, e.hold,
		[]string{"acquire", "try", "claim", "enter", "extend", "leave", "complete", "revoke", "lose"}[e.what],
		[]string{"yes", "busy", "record", "revoked", "lost", "gone", "unknown"}[e.answer],
		e.token, e.prev, e.attempt, e.by, e.inLine, e.shared, e.value)
}
