package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// describe prints a key, one fact a line.
func describe(out io.Writer, k operator.Key) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(w, "%s\t%v\n", name, v) }
	for _, fact := range k.Facts() {
		line(fact.Name, fact.Value)
	}
	if k.Result != nil && k.Result.HTTP != nil {
		describeResponse(k.Result.HTTP, line)
	}
	return w.Flush()
}

// withResponse adds the decoded response of a record of httpmw.
func withResponse(k *operator.Key) {
	if r := k.Result; r != nil && r.Codec == "http" {
		r.HTTP = httpResultOf(r.Data)
	}
}

// show prints the state of a key, of both kinds.
func (sh *shell) show(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("show", " KEY")
	once := f.Bool("once", false, "only the key of Once")
	exclusive := f.Bool("exclusive", false, "only the key of Exclusive")
	data := f.Bool("result", false, "also print the recorded result")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	kinds := []event.Kind{event.KindExclusive, event.KindOnce}
	switch {
	case *once && *exclusive:
		return exitFailed, errors.New("-once and -exclusive exclude each other")
	case *once:
		kinds = kinds[1:]
	case *exclusive:
		kinds = kinds[:1]
	}
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		var known []operator.Key
		code, hint := exitProblem, "; is that the right key and prefix (-prefix, -schema)? holdfast ls lists the keys"
		for _, kind := range kinds {
			k, err := operator.Inspect(ctx, l, kind, f.Arg(0), *data)
			if err != nil {
				return exitFailed, err
			}
			if *data {
				withResponse(&k)
			}
			if k.State != lockcore.StateFree || k.PauseLeft > 0 {
				code = exitOK
			}
			if k.Known() {
				known, hint = append(known, k), ""
			}
		}
		for i := range known {
			if known[i].Parked > 0 {
				hint = "; it has parked tasks: holdfast wake wakes them"
			}
		}
		if *asJSON {
			return code, sh.printKeys("", known...)
		}
		for i, k := range known {
			if i > 0 {
				fmt.Fprintln(sh.out)
			}
			if err := describe(sh.out, k); err != nil {
				return exitFailed, err
			}
		}
		if code == exitProblem {
			fmt.Fprintf(sh.err, "%s is free%s\n", operator.OneLine(f.Arg(0)), hint)
		}
		return code, nil
	})
}

// revoke revokes the lease of a held key after a confirmation.
func (sh *shell) revoke(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("revoke", " KEY")
	once := f.Bool("once", false, "a key of Once, not of Exclusive")
	yes := f.Bool("yes", false, "skip the confirmation")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	kind, key := kindOf(*once), f.Arg(0)
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		k, err := operator.Inspect(ctx, l, kind, key, false)
		if err != nil {
			return exitFailed, err
		}
		if k.State != lockcore.StateHeld && k.State != lockcore.StateShared {
			fmt.Fprintf(sh.err, "%s is %s, not held: nothing to revoke\n", operator.OneLine(key), k.StateText())
			switch k.State { //nolint:exhaustive // the other states need no advice
			case lockcore.StateFree:
				fmt.Fprintln(sh.err, sh.elsewhere(ctx, l, *once, key, "without -once"))
			case lockcore.StateCooling:
				fmt.Fprintf(sh.err, "holdfast clear -%s frees it before that\n", kind)
			}
			return exitProblem, sh.jsonIf(*asJSON, k)
		}
		say := sh.out
		if *asJSON {
			say = sh.err
		}
		fmt.Fprint(say, k.RevokeText())
		if k.State == lockcore.StateHeld {
			fmt.Fprintf(say, "If its process has died, holdfast clear -force%s frees the key earlier.\n", onceFlag(*once))
		}
		if err := sh.confirm(*yes, "Revoke it?", "not revoked"); err != nil {
			return exitFailed, err
		}
		switch err := l.RevokeIfUnchanged(ctx, kind, key, k.Holding); {
		case errors.Is(err, lockcore.ErrChanged):
			fmt.Fprintf(sh.err, "%s has changed since it was shown: not revoked\n", operator.OneLine(key))
			return exitProblem, sh.jsonIf(*asJSON, k)
		case err != nil:
			return exitFailed, err
		}
		if *asJSON {
			return exitOK, sh.printKeys("revoked", k)
		}
		fmt.Fprintln(sh.out, "revoked")
		return exitOK, nil
	})
}

// elsewhere returns a hint if the key of the other kind with that name is not free. exclusive is
// the flag that selects the exclusive key.
func (sh *shell) elsewhere(ctx context.Context, l *lockcore.Locker, once bool, key, exclusive string) string {
	say := "-once"
	if once {
		say = exclusive
	}
	if k, err := operator.Inspect(ctx, l, kindOf(!once), key, false); err == nil && k.State != lockcore.StateFree {
		return fmt.Sprintf("the key of %s with that name is %s: try %s", k.Kind, k.StateText(), say)
	}
	return "is that the right key, prefix (-prefix, -schema) and kind (-once)?"
}

// confirm reads a yes from the terminal. The question is printed on stderr, so that stdout has only
// the result.
func (sh *shell) confirm(yes bool, question, otherwise string) error {
	if yes {
		return nil
	}
	if !sh.terminal {
		return errors.New("stdin is not a terminal: pass -yes")
	}
	answer, err := sh.ask(question + " (yes/no) ")
	if err != nil {
		return errors.New(otherwise + ": stdin has ended: without a terminal pass -yes")
	}
	if answer != "yes" {
		return errors.New(otherwise)
	}
	return nil
}

// ask reads a line from the terminal.
func (sh *shell) ask(question string) (string, error) {
	signal.Reset(os.Interrupt, syscall.SIGTERM) // a signal ends the process from here on, because the end of ctx does not interrupt a read
	fmt.Fprint(sh.err, question)
	answer, err := bufio.NewReader(sh.in).ReadString('\n')
	if answer != "" {
		err = nil
	}
	return strings.TrimSpace(answer), err
}

func onceFlag(once bool) string {
	if once {
		return " -once"
	}
	return ""
}

func kindOf(once bool) event.Kind {
	if once {
		return event.KindOnce
	}
	return event.KindExclusive
}
