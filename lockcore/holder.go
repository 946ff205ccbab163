package lockcore

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const maxTaskLen = 128

type taskKey struct{}

// WithTask returns a ctx that names the task of the caller, such as an asynq task ID or a request
// ID. Other callers see it in [event.Holder].Task. The backend stores at most 128 bytes of it with the
// hold, without control characters.
func WithTask(ctx context.Context, task string) context.Context {
	return context.WithValue(ctx, taskKey{}, oneLine(task))
}

// oneLine returns at most 128 bytes of s, without control characters. The text of a holder has one
// field per line.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), maxTaskLen)]
}

// thisProcess returns the part of holderText that is the same for all holds of a process.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return oneLine(host) + "\n" + strconv.Itoa(os.Getpid()) + "\n"
}

// holderOf parses the text of a holder. locker is the UUID of its Locker, or empty.
func holderOf(locker, text string) event.Holder {
	h := backend.ParseHolder(text)
	return event.Holder{Locker: locker, Host: h.Host, PID: h.PID, Task: h.Task, Traceparent: h.Traceparent}
}
