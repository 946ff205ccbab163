package cli

import (
	"context"
	"flag"
	"fmt"
	"os/user"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pause pauses a key of Exclusive, Shared, Limited or Throttled, or ends its pause.
func (sh *shell) pause(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("pause", " KEY")
	d := f.Duration("for", 10*time.Minute, "no call of the key begins for this long, 1ms to 24h; a running pause gets longer, never shorter: -end ends it")
	end := f.Bool("end", false, "end the pause of the key; without -for and -reason")
	reason := f.String("reason", "", "shown to those who wait for the key, at most 256 bytes (default: your name)")
	yes := f.Bool("yes", false, "do not ask for confirmation")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	if err := alone(f, *end, "for", "reason"); err != nil {
		return exitFailed, err
	}
	key := f.Arg(0)
	switch {
	case *end:
		*d, *reason = 0, ""
	case *d <= 0:
		return exitFailed, fmt.Errorf("-for is %v, must be between 1ms and 24h", *d)
	case *reason == "":
		*reason = byUser("holdfast pause")
	}
	c := change{key: key, yes: *yes, json: *asJSON, question: fmt.Sprintf("Let no call of %s begin for %v?", operator.OneLine(key), *d), action: "paused"}
	if *end {
		c.question, c.action = fmt.Sprintf("End the pause of %s?", operator.OneLine(key)), "resumed"
		c.nothing = func(k operator.Key) string {
			if k.PauseLeft > 0 {
				return ""
			}
			return "is not paused"
		}
	}
	c.do = func(l *lockcore.Locker) error { return l.Pause(ctx, key, *d, *reason) }
	return sh.change(ctx, t, c)
}

// change is what pause or limit does to an exclusive key.
type change struct {
	key, question, action string
	nothing               func(operator.Key) string // why there is nothing to end, or ""; nil: there always is
	yes, json, limit      bool
	do                    func(*lockcore.Locker) error
}

func (sh *shell) change(ctx context.Context, t *target, c change) (int, error) {
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		k, err := operator.Inspect(ctx, l, event.KindExclusive, c.key, false)
		if err != nil {
			return exitFailed, err
		}
		if c.nothing != nil {
			if why := c.nothing(k); why != "" {
				fmt.Fprintf(sh.err, "%s %s: nothing to end\n", operator.OneLine(c.key), why)
				return exitProblem, sh.jsonIf(c.json, k)
			}
		}
		if doubt := operator.Doubt(ctx, l, &k, c.limit); doubt != "" {
			fmt.Fprintln(sh.err, doubt)
		}
		if err := sh.confirm(c.yes, c.question, "not "+c.action); err != nil {
			return exitFailed, err
		}
		if err := c.do(l); err != nil {
			return exitFailed, err
		}
		if c.json {
			return exitOK, sh.printKeys(c.action, k)
		}
		fmt.Fprintln(sh.out, c.action)
		return exitOK, nil
	})
}

// alone returns an error if -end was passed together with one of the flags, which would have no
// effect.
func alone(f *flag.FlagSet, end bool, flags ...string) (err error) {
	f.Visit(func(other *flag.Flag) {
		if end && err == nil && slices.Contains(flags, other.Name) {
			err = fmt.Errorf("-%s has no effect with -end: pass one of them", other.Name)
		}
	})
	return err
}

// byUser returns the default of -reason.
func byUser(what string) string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return what + " by " + u.Username
	}
	return what
}
