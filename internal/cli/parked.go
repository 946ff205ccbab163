package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	notReceived = `No process received it: the process that parked a task of this key most recently has ended, or is not subscribed.
The task comes back without a wake-up at the next run that asynq shows.
`
	otherNode = `In a Cluster Redis counts the subscribers of one node: a process that is connected to another node may have received it.
`
)

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
		k, err := operator.Inspect(ctx, l, kind, key, false)
		if err != nil {
			return exitFailed, err
		}
		if k.Parked == 0 {
			fmt.Fprintf(sh.err, "%s has no parked tasks: nothing to wake\n%s\n", operator.OneLine(key), elsewhereParked(ctx, l, *once, key))
			return exitProblem, sh.jsonIf(*asJSON, k)
		}
		received, err := operator.Wake(ctx, l, kind, key)
		if err != nil {
			return exitFailed, err
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
			fmt.Fprintf(sh.err, "%s is %s: the task waits for it, or is parked again in its old place\n", operator.OneLine(key), k.StateText())
		}
		return code, err
	})
}

// elsewhereParked returns a hint for a key without parked tasks.
func elsewhereParked(ctx context.Context, l *lockcore.Locker, once bool, key string) string {
	if k, err := operator.Inspect(ctx, l, kindOf(!once), key, false); err == nil && k.Parked > 0 {
		try := "-once"
		if once {
			try = "without -once"
		}
		return fmt.Sprintf("the key of %s with that name has %d: try %s", k.Kind, k.Parked, try)
	}
	return "is that the right key, prefix (-prefix, -schema) and kind (-once)?"
}
