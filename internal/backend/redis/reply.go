package redis

import (
	"fmt"
	"time"
)

// number returns element i of a reply as a number. A reply of another form is an error, never a
// grant.
func number(reply []any, i int) (int64, error) {
	if i < len(reply) {
		if n, ok := reply[i].(int64); ok && n >= 0 { // invalid data overflows to a negative number
			return n, nil
		}
	}
	return 0, &replyError{fmt.Sprintf("lockcore: unexpected reply: no number at %d of %d", i, len(reply))}
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

// maxSpan bounds the durations that replies contain, so that sums of them do not overflow.
const maxSpan = 100 * 365 * 24 * time.Hour

// micro converts microseconds to a duration of at most maxSpan.
func micro(us int64) time.Duration {
	return time.Duration(min(us, maxSpan.Microseconds())) * time.Microsecond
}

func micros(d time.Duration) int64 { return d.Microseconds() }
func millis(d time.Duration) int64 { return d.Milliseconds() }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
