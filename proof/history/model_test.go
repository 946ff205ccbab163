package history_test

import (
	"github.com/anishathalye/porcupine"
)

// state is a key as the model sees it: a reentrant mutex with fencing tokens that, as a once key,
// can also be done. Shares are readers of its register: all that are held at the same time have one
// token, and a reader and the holder exclude each other. Between two rounds no key is held, and
// only last, done, by and runs remain.
type state struct {
	last    int64 // token
	holder  int32 // hold, 0: free
	by      int32 // the hold that completed
	runs    int32 // of a once key
	depth   int16 // runs of the holder that have not returned
	revoked bool  // since the grant of Redis under which the last hold runs
	done    bool
	share   bool  // the last hold is a share; then last is the token of the phase
	readers int32 // shares that are held
	value   int64 // of the register
}

// model describes what a key may do from init on. It is not split: each history is that of one key.
func model(init state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(s, in, _ any) (bool, any) {
			next, ok := s.(state).step(in.(*operation)) //nolint:errcheck,forcetypeassert // see operations
			return ok, next
		},
		Hash: func(s any) uint64 {
			x := s.(state) //nolint:errcheck,forcetypeassert // as above
			return (uint64(x.last)*31+uint64(x.holder))*31 + uint64(x.depth) + uint64(x.by)*7 + uint64(x.readers)*131 + uint64(x.value)*8191
		},
	}
}

// step returns the state after e, and whether e may happen now.
func (s state) step(e *operation) (state, bool) {
	mine := s.holder == e.hold && e.hold != 0
	switch e.what {
	case acquire, try, claim:
		return s.asked(e)
	case enter:
		s.depth++
		return s, mine && e.token == s.last
	case extend: // Redis refuses it as soon as the lease is revoked
		return s, mine && s.revoked == (e.answer == revoked)
	case leave:
		if e.shared {
			ok := s.readers > 0 && e.value == s.value
			s.readers--
			return s, ok
		}
		if e.answer == lost { // see lose
			return s, true
		}
		if s.depth--; s.depth == 0 {
			s.holder, s.value = 0, e.value
		}
		return s, mine && (e.answer == yes || s.revoked) // the holder may not know that yet
	case complete:
		s.holder, s.depth, s.done, s.by = 0, 0, true, e.hold
		return s, mine && e.answer == yes
	case revoke: // between two holds of a batch it strikes the second
		s.revoked = true
		return s, true
	default: // the ctx was canceled before another hold could have the key
		s.holder, s.depth = 0, 0
		return s, mine
	}
}

// asked handles a call that requests the key. Tokens grow with each grant, so the grant before that
// of e has the greatest token that is smaller.
func (s state) asked(e *operation) (state, bool) {
	switch e.answer {
	case yes:
		ok := s.holder == 0 && !s.done && s.value == e.value
		if e.shared {
			joins := s.share && s.last == e.token
			ok = ok && (joins || s.readers == 0 && s.last == e.prev && e.token > s.last)
			s.share, s.last = true, e.token
			s.readers++
			return s, ok
		}
		ok = ok && s.readers == 0 && s.last == e.prev && e.token > s.last
		s.share = false
		if e.what == claim {
			ok = ok && e.attempt == s.runs+1
			s.runs = e.attempt
		}
		s.revoked = s.revoked && e.token == s.last+1 // handed off under the grant that was revoked
		s.holder, s.depth, s.last = e.hold, 1, e.token
		return s, ok
	case busy:
		return s, s.holder != 0 || s.readers > 0 && !e.shared || e.inLine && !s.done
	case record:
		return s, s.done && s.by == e.by && s.runs == e.attempt
	default:
		return s, true
	}
}
