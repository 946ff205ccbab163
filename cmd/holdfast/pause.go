package main

import (
	"context"
	"fmt"
	"os/user"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pause pauses a key of Exclusive, Shared, Limited or Throttled, or ends its pause.
func (sh *shell) pause(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("pause", " KEY")
	d := f.Duration("for", 10*time.Minute, "no call of the key begins for this long, 1ms to 24h; of two pauses the one that ends later counts")
	end := f.Bool("end", false, "end the pause of the key")
	reason := f.String("reason", "", "shown to whom waits for the key, at most 256 bytes (default: your name)")
	yes := f.Bool("yes", false, "do not ask for confirmation")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	key := f.Arg(0)
	switch {
	case *end:
		*d, *reason = 0, ""
	case *d <= 0:
		return exitFailed, fmt.Errorf("-for is %v, must be between 1ms and 24h", *d)
	case *reason == "":
		*reason = "holdfast pause"
		if u, err := user.Current(); err == nil && u.Username != "" {
			*reason = "holdfast pause by " + u.Username
		}
	}
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		k, err := inspect(ctx, l, event.KindExclusive, key, false)
		if err != nil {
			return exitFailed, err
		}
		if *end && k.PauseLeft == 0 {
			fmt.Fprintf(sh.err, "%s is not paused: nothing to end\n", oneLine(key))
			return exitProblem, sh.jsonIf(*asJSON, k)
		}
		question, action := fmt.Sprintf("Let no call of %s begin for %v?", oneLine(key), *d), "paused"
		if *end {
			question, action = fmt.Sprintf("End the pause of %s?", oneLine(key)), "resumed"
		}
		if err := sh.confirm(*yes, question, "not "+action); err != nil {
			return exitFailed, err
		}
		if err := l.Pause(ctx, key, *d, *reason); err != nil {
			return exitFailed, err
		}
		if *asJSON {
			return exitOK, sh.printKeys(action, k)
		}
		fmt.Fprintln(sh.out, action)
		return exitOK, nil
	})
}
