package backend

import (
	"strconv"
	"strings"
)

// The ends of the text of a holder that does not renew its lease.
const (
	Unrenewed   = "\nunrenewed"   // of AcquireFixed
	Transferred = "\ntransferred" // until the hold is adopted
)

// Holder is a parsed holder text.
type Holder struct {
	Host        string
	PID         int
	Task        string
	Traceparent string
	Unrenewed   bool // the holder does not renew the lease
	Transferred bool // Unrenewed, and the hold was transferred
}

// ParseHolder parses a text with host, PID, task and traceparent, one per line, and perhaps
// Unrenewed or Transferred. For a text of another form it returns the zero Holder.
func ParseHolder(text string) Holder {
	text, unrenewed := strings.CutSuffix(text, Unrenewed)
	text, transferred := strings.CutSuffix(text, Transferred)
	f := strings.SplitN(text, "\n", 4)
	if len(f) != 4 {
		return Holder{}
	}
	pid, _ := strconv.Atoi(f[1])
	return Holder{Host: f[0], PID: pid, Task: f[2], Traceparent: f[3], Unrenewed: unrenewed || transferred, Transferred: transferred}
}
