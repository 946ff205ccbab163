package wire

import (
	"fmt"
	"math"
	"time"
)

// ReplyError is the error of a reply of an unknown form, which another program or another release
// has sent.
type ReplyError struct{ text string }

func (e *ReplyError) Error() string { return e.text }

// Elements returns a reply as a list. Any other reply becomes a list of one element.
func Elements(reply any) []any {
	if list, ok := reply.([]any); ok {
		return list
	}
	return []any{reply}
}

// IsStep reports whether a reply says that the script had only the effect of a step, see share_member.lua.
// The same command must be sent again at once. Each decoder returns an error for such a reply.
func IsStep(reply any) bool { return reply == any(int64(-1)) }

// number returns element i of a reply as a number. A reply of another form is an error, never a
// grant.
func number(reply []any, i int) (int64, error) {
	if i < len(reply) {
		if n, ok := reply[i].(int64); ok && n >= 0 { // invalid data overflows to a negative number
			return n, nil
		}
	}
	return 0, &ReplyError{fmt.Sprintf("lockcore: unexpected reply: no number at %d of %d", i, len(reply))}
}

// token returns element i of a reply as a token. A greater number is from invalid data, because Lua
// has no exact numbers above 2^53.
func token(reply []any, i int) (int64, error) {
	n, err := number(reply, i)
	if err == nil && n >= 1<<53 {
		return 0, &ReplyError{"lockcore: unexpected reply: the token is too large"}
	}
	return n, err
}

// isSet reports whether element i of a reply is 1. Most replies end before i, and then number would
// allocate an error.
func isSet(reply []any, i int) bool { return i < len(reply) && reply[i] == int64(1) }

func text(reply []any, i int) string {
	if i < len(reply) {
		if s, ok := reply[i].(string); ok {
			return s
		}
	}
	return ""
}

// count returns element i as a count, or 0 if it is not a number.
func count(reply []any, i int) int {
	n, _ := number(reply, i)
	return int(min(n, math.MaxInt32))
}

// span returns element i as a duration, or 0 if it is not a number.
func span(reply []any, i int) time.Duration {
	n, _ := number(reply, i)
	return micro(n)
}

// maxSpan bounds the durations that replies contain, so that sums of them do not overflow.
const maxSpan = 100 * 365 * 24 * time.Hour

// micro converts microseconds to a duration of at most maxSpan.
func micro(us int64) time.Duration {
	return time.Duration(min(us, maxSpan.Microseconds())) * time.Microsecond
}
