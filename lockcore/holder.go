package lockcore

import (
	"context"
	"os"
	"strconv"
	"strings"
)

const maxTaskLen = 128

type taskKey struct{}

// WithTask names the job that ctx belongs to, so that waiters see it: an asynq task ID, a request ID. It
// is stored in Redis with the hold; at most 128 bytes of it, without control characters.
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

// thisProcess is the part of who that all holds of a process share.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return oneLine(host) + "\n" + strconv.Itoa(os.Getpid()) + "\n"
}

// who is what the hash keeps of a holder: host, pid, task and traceparent, a line each.
func (l *Locker) who(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	trace := ""
	if l.obs != nil {
		trace = oneLine(l.traceparent(ctx))
	}
	if task == "" && trace == "" {
		return l.nobody
	}
	return l.process + task + "\n" + trace
}

// parseHolder never fails: what another release or a stranger wrote is shown as far as it is understood.
func parseHolder(who string) Holder {
	f := strings.SplitN(who, "\n", 4)
	if len(f) != 4 {
		return Holder{}
	}
	pid, _ := strconv.Atoi(f[1])
	return Holder{Host: f[0], PID: pid, Task: f[2], Traceparent: f[3]}
}
