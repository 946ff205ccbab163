package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// forcing has the flags of clear -force.
type forcing struct {
	force, evenAlive *bool
	holder           *string
}

func forceFlags(f *flag.FlagSet) forcing {
	return forcing{
		force:     f.Bool("force", false, "end the lease of a holder that has died, so that a held key is free before the end of that lease"),
		evenAlive: f.Bool("even-alive", false, "with -force: at once, even if the holder may be alive"),
		holder:    f.String("holder", "", "with -force: `HOST/PID` of the holder, instead of the confirmation"),
	}
}

// check returns an error if the flags do not fit together.
func (o forcing) check(yes bool) error {
	switch {
	case *o.force && yes:
		return errors.New("-yes does not confirm -force: pass -holder HOST/PID")
	case !*o.force && *o.holder != "":
		return errors.New("-holder needs -force")
	case !*o.force && *o.evenAlive:
		return errors.New("-even-alive needs -force")
	}
	return nil
}

const forceText = `Forcing ends this lease although its holder has not released it: the next call takes the key over,
with a greater fencing token. If the holder still works, two handlers then work on the key at the
same time, and only a resource that checks fencing tokens refuses the old one. So check first that
its process has ended.
`

const forceUnrenewed = `held under a lease that is not renewed (AcquireFixed, or transferred to another process),
so nothing shows whether its holder has died. Check that, and pass -even-alive`

// forceClear ends the lease of a held key after a confirmation by the holder's name, unless the key
// has changed since it was shown.
func (sh *shell) forceClear(ctx context.Context, l *lockcore.Locker, k operator.Key, o forcing, asJSON bool) (int, error) {
	refuse := func(why string) (int, error) {
		fmt.Fprintf(sh.err, "%s is %s: not cleared\n", operator.OneLine(k.Key), why)
		return exitProblem, sh.jsonIf(asJSON, k)
	}
	say := sh.out
	if asJSON {
		say = sh.err
	}
	if err := describe(say, k); err != nil {
		return exitFailed, err
	}
	switch {
	case k.State == lockcore.StateShared:
		return refuse("shared, and -force ends no shares; each share ends with its own lease")
	case k.State != lockcore.StateHeld:
		return refuse(k.StateText() + ", and -force is only for a held key")
	case k.Fixed && !*o.evenAlive:
		return refuse(forceUnrenewed)
	}
	fmt.Fprint(say, forceText)
	if wait := k.Lease*3/5 - (k.Lease - k.Remaining); wait > 0 && !*o.evenAlive {
		fmt.Fprintf(say, "A living holder may renew the lease later than now: the command waits for that, at most for %s.\n", operator.Age(wait))
	}
	if err := sh.confirmHolder(k.Holder, *o.holder); err != nil {
		return exitFailed, err
	}
	end := l.ForceClear
	if *o.evenAlive {
		end = l.ForceClearEvenAlive
	}
	switch err := end(ctx, k.Kind, k.Key, k.Holding); {
	case errors.Is(err, lockcore.ErrAlive):
		return refuse("held, and its holder has renewed the lease or transferred the hold meanwhile, so it lives; see holdfast revoke, or pass -even-alive")
	case errors.Is(err, lockcore.ErrChanged):
		return refuse("changed since it was shown")
	case err != nil:
		return exitFailed, err
	}
	if k.Kind == event.KindOnce {
		fmt.Fprintln(sh.err, "it is abandoned now: the next call takes it over; with AtMostOnce, holdfast clear -once lets it run again")
	}
	if asJSON {
		return exitOK, sh.printKeys("cleared", k)
	}
	fmt.Fprintln(sh.out, "cleared")
	return exitOK, nil
}

// confirmHolder compares the holder's name, HOST/PID, with given, or with an answer from the terminal.
func (sh *shell) confirmHolder(h event.Holder, given string) error {
	name := "unknown"
	if h.Host != "" {
		name = operator.OneLine(fmt.Sprintf("%s/%d", h.Host, h.PID))
	}
	if given == "" {
		if !sh.terminal {
			return errors.New("stdin is not a terminal: pass -holder HOST/PID")
		}
		answer, err := sh.ask("Which holder has died? (HOST/PID) ")
		if err != nil {
			return errors.New("not cleared: stdin has ended: without a terminal pass -holder HOST/PID")
		}
		given = answer
	}
	if strings.TrimSpace(given) != name {
		return fmt.Errorf("not cleared: the holder is %s, not %q", name, given)
	}
	return nil
}
