package signals_test

import (
	"fmt"
	"sync"
)

// register is the resource of one key, twice: one that checks tokens, and one that does not, the control.
type register struct {
	mu sync.Mutex

	token    int64 // greatest that was seen
	by       string
	value    int
	accepted int
	late     int // writes refused

	last     int64 // token of the control's last write
	overlaps int   // writes that the control took from an earlier holder than its last one
}

func (r *register) read() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// write says whether the fenced resource took it: no smaller token than one that it has seen, and no equal one of another hold.
func (r *register) write(token int64, by string, value int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.last {
		r.overlaps++
	}
	r.last = token
	if token < r.token || token == r.token && by != r.by {
		r.late++
		return false
	}
	r.token, r.by, r.value = token, by, value
	r.accepted++
	return true
}

// problem is a write that was taken and lost again, for two were inside.
func (r *register) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value != r.accepted {
		return fmt.Errorf("the register has %d after %d writes", r.value, r.accepted)
	}
	return nil
}
