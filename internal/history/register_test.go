package history_test

import "sync"

// register is a resource that checks tokens: it takes no write with a token smaller than one that it has seen, nor with an equal one of
// another hold. Each holder reads it and writes one more: two at once would lose a write, and the value would be less than what
// was accepted.
type register struct {
	mu       sync.Mutex
	token    int64
	by       int32
	value    int64
	accepted int64
}

func (r *register) read() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// readBy is a read by a holder; by is 0 for all readers of a phase. It is refused, as a write is, if the token is smaller than one that
// the register has seen.
func (r *register) readBy(token int64, by int32) (value int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.token {
		return r.value, false
	}
	if token > r.token {
		r.token, r.by = token, by
	}
	return r.value, true
}

func (r *register) write(token int64, by int32, value int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.token || token == r.token && by != r.by {
		return false
	}
	r.token, r.by, r.value = token, by, value
	r.accepted++
	return true
}
