package lockcore

import (
	"context"
	"os"
	"strconv"
	"strings"
)

const maxTaskLen = 128

type taskKey struct{}

// WithTask names the job that ctx belongs to, such as an asynq task ID or a request ID, so that
// waiters see it. It is stored in Redis with the hold: at most 128 bytes of it, without control
// characters.
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

// holderText is what the hash stores of a holder: host, PID, task and traceparent, one per line.
func (l *Locker) holderText(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	trace := ""
	if l.observer != nil {
		trace = oneLine(l.traceparent(ctx))
	}
	if task == "" && trace == "" {
		return l.holderWithoutTask
	}
	return l.processID + task + "\n" + trace
}

// parseHolder never fails: it returns as much as it can parse of text from another release or
// program.
func parseHolder(who string) Holder {
	f := strings.SplitN(who, "\n", 4)
	if len(f) != 4 {
		return Holder{}
	}
	pid, _ := strconv.Atoi(f[1])
	return Holder{Host: f[0], PID: pid, Task: f[2], Traceparent: f[3]}
}
