package backend

import (
	"strconv"
	"strings"
)

// Holder is a parsed holder text.
type Holder struct {
	Host        string
	PID         int
	Task        string
	Traceparent string
}

// ParseHolder parses a text with host, PID, task and traceparent, one per line. For a text of
// another form it returns the zero Holder.
func ParseHolder(text string) Holder {
	f := strings.SplitN(text, "\n", 4)
	if len(f) != 4 {
		return Holder{}
	}
	pid, _ := strconv.Atoi(f[1])
	return Holder{Host: f[0], PID: pid, Task: f[2], Traceparent: f[3]}
}
