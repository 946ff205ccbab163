package chaos

import (
	"fmt"
	"sync"
)

// Register is a shared counter that checks fencing tokens. Holders of a key read it and write one
// more. It accepts a call if its token is greater than all tokens accepted before. It also accepts
// further calls of the same hold with that token. If two holders overlap and the tokens do not
// separate them, an increment is lost. The zero Register is ready.
type Register struct {
	mu       sync.Mutex
	token    int64
	by       any
	value    int64
	last     int64 // token of the last write, accepted or not
	accepted int
	refused  int
	overlaps int
}

// Value returns the value without a check.
func (r *Register) Value() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// Read returns the value, and whether it accepted the token of the hold named by.
func (r *Register) Read(token int64, by any) (value int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.passLocked(token, by)
}

// Write sets the value and reports whether it accepted the token of the hold named by.
func (r *Register) Write(token int64, by any, value int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.last {
		r.overlaps++
	}
	r.last = token
	if !r.passLocked(token, by) {
		return false
	}
	r.value = value
	r.accepted++
	return true
}

func (r *Register) passLocked(token int64, by any) bool {
	if token < r.token || token == r.token && by != r.by {
		r.refused++
		return false
	}
	r.token, r.by = token, by
	return true
}

// Counts returns how many writes were accepted, and how many reads and writes were refused.
// overlaps is the number of writes whose token was smaller than that of the previous write. Such a
// write is from an earlier holder, and a register without tokens would have accepted it.
func (r *Register) Counts() (accepted, refused, overlaps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted, r.refused, r.overlaps
}

// Check returns an error if an increment was lost.
func (r *Register) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value != int64(r.accepted) {
		return fmt.Errorf("the register has %d after %d accepted writes", r.value, r.accepted)
	}
	return nil
}
