package lockcore

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const maxTaskLen = 128

type taskKey struct{}

// WithTask names the job that ctx belongs to, such as an asynq task ID or a request ID. Waiters see
// it in Holder.Task. At most 128 bytes of it are stored with the hold, without control characters.
func WithTask(ctx context.Context, task string) context.Context {
	return context.WithValue(ctx, taskKey{}, oneLine(task))
}

func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), maxTaskLen)]
}

// thisProcess returns the part of holderText that all holds of a process share.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return oneLine(host) + "\n" + strconv.Itoa(os.Getpid()) + "\n"
}

// holderOf parses the text of a holder. locker is the UUID of its Locker, or empty.
func holderOf(locker, text string) Holder {
	h := backend.ParseHolder(text)
	return Holder{Locker: locker, Host: h.Host, PID: h.PID, Task: h.Task, Traceparent: h.Traceparent}
}
