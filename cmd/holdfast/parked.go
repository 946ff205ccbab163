package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	notReceived = `No process received it: the process that parked a task of this key most recently has ended, or is not subscribed.
The task comes back without a wake-up at the next run that asynq shows.
`
	otherNode = `In a Cluster Redis counts the subscribers of one node: a process that is connected to another node may have received it.
`
)

// parkedTask is a parked task in the output of -json.
type parkedTask struct {
	Deployment string `json:"deployment,omitempty"` // asynqmw.Parking.Deployment
	Queue      string `json:"queue"`
	ID         string `json:"id"`
}

// parkedTaskOf parses lockcore.Holding.OldestParked. Text of another form becomes the ID.
func parkedTaskOf(entry string) parkedTask {
	parts := strings.Split(entry, "/")
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			return parkedTask{ID: entry}
		}
		parts[i] = text
	}
	if len(parts) != 3 {
		return parkedTask{ID: entry}
	}
	return parkedTask{Deployment: parts[0], Queue: parts[1], ID: parts[2]}
}

// String returns the task in one line.
func (p parkedTask) String() string {
	text := oneLine(p.ID)
	if p.Queue != "" {
		text += ", queue " + oneLine(p.Queue)
	}
	if p.Deployment != "" {
		text += ", deployment " + oneLine(p.Deployment)
	}
	return text
}

// wake asks a worker process to wake the first parked task of a key.
func (sh *shell) wake(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("wake", " KEY")
	once := f.Bool("once", false, "a key of Once, not of Exclusive")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	if t.quorum {
		return exitFailed, errors.New("on a majority of servers no tasks are parked: a task whose key is busy comes back by its own delay")
	}
	kind, key := kindOf(*once), f.Arg(0)
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		k, err := inspect(ctx, l, kind, key, false)
		if err != nil {
			return exitFailed, err
		}
		if k.Parked == 0 {
			fmt.Fprintf(sh.err, "%s has no parked tasks: nothing to wake\n%s\n", oneLine(key), elsewhereParked(ctx, l, *once, key))
			return exitProblem, sh.jsonIf(*asJSON, k)
		}
		b := access.Of(l).Backend
		stored := b.Key(backend.Kind(kind), key)
		received, err := b.CallParkingLocker(ctx, &stored)
		if err != nil {
			return exitFailed, errtext.Wrap(lockcore.ErrUnavailable, err)
		}
		code, action := exitOK, "sent"
		if received == 0 {
			code, action = exitProblem, ""
		}
		if *asJSON {
			all := keysOf(action, k)
			all.Received = &received
			err = sh.print(all)
		} else {
			fmt.Fprintf(sh.out, "sent to %d process(es)\n", received)
		}
		if received == 0 {
			fmt.Fprint(sh.err, notReceived)
			if t.cluster {
				fmt.Fprint(sh.err, otherNode)
			}
		} else if k.State == lockcore.StateHeld || k.State == lockcore.StateCooling {
			fmt.Fprintf(sh.err, "%s is %s: the task waits for it, or is parked again in its old place\n", oneLine(key), state(k))
		}
		return code, err
	})
}

// elsewhereParked returns a hint for a key without parked tasks.
func elsewhereParked(ctx context.Context, l *lockcore.Locker, once bool, key string) string {
	if k, err := inspect(ctx, l, kindOf(!once), key, false); err == nil && k.Parked > 0 {
		try := "-once"
		if once {
			try = "without -once"
		}
		return fmt.Sprintf("the key of %s with that name has %d: try %s", k.Kind, k.Parked, try)
	}
	return "is that the right key, prefix (-prefix) and kind (-once)?"
}
