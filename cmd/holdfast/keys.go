package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The outcomes of a done key's run, in -json and, with a space, in the other output.
const (
	succeeded = "ok"
	failed    = "failed"
	notKept   = "not_kept"
	badRecord = "bad_record"
)

const maxFailure = 80 // bytes of a failure's text in the state column

// keyed is a key and its state.
type keyed struct {
	doctor.Entry
	result *result // of a done key
}

// inspect returns the state of one key.
func inspect(ctx context.Context, l *lockcore.Locker, kind event.Kind, key string, data bool) (k keyed, err error) {
	k.Kind, k.Key = kind, key
	if k.Holding, err = l.Inspect(ctx, kind, key); k.Record != nil {
		k.result = resultOf(k.Record.Data, data)
	}
	return k, err
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
		var known []keyed
		code, hint := exitProblem, "; is that the right key and prefix (-prefix)? holdfast ls lists the keys"
		for _, kind := range kinds {
			k, err := inspect(ctx, l, kind, f.Arg(0), *data)
			if err != nil {
				return exitFailed, err
			}
			if k.State != lockcore.StateFree {
				code = exitOK
			}
			if k.State != lockcore.StateFree || k.NotReleased || k.Token != 0 || k.Queue > 0 || k.Parked > 0 || k.Restriction.For > 0 {
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
			fmt.Fprintf(sh.err, "%s is free%s\n", oneLine(f.Arg(0)), hint)
		}
		return code, nil
	})
}

// describe prints a key, one fact a line.
func describe(out io.Writer, k keyed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(w, "%s\t%v\n", name, v) }
	line("key", oneLine(k.Key))
	line("kind", k.Kind)
	line("state", state(k))
	if k.State != lockcore.StateFree || k.NotReleased {
		line("holder", holder(k.Holder))
		if k.Holder.Locker != "" {
			line("locker", oneLine(k.Holder.Locker))
		}
		if k.Holder.Traceparent != "" {
			line("trace", oneLine(k.Holder.Traceparent))
		}
		switch k.State {
		case lockcore.StateShared: // the holder is the one of the share that was granted last
			line("shared for", age(k.HeldFor))
		case lockcore.StateHeld:
			line("for", age(k.HeldFor))
		default:
			line("began", age(k.HeldFor)+" ago")
		}
	}
	switch {
	case k.Remaining <= 0:
	case k.State == lockcore.StateCooling:
		line("free in", age(k.Remaining))
	case k.Lease > 0:
		line("lease left", age(k.Remaining)+" of "+age(k.Lease))
	default:
		line("lease left", age(k.Remaining))
	}
	if k.PauseLeft > 0 {
		line("paused for", age(k.PauseLeft)+": "+oneLine(k.PauseReason))
	}
	if r := k.Restriction; r.For > 0 {
		line("restricted", "to "+bounds(r)+" for "+age(r.For)+": "+oneLine(r.Reason))
	}
	switch {
	case k.Fixed:
		line("renewed", "no")
	case k.State == lockcore.StateHeld:
		line("renewed", age(max(k.Lease-k.Remaining, 1))+" ago")
	}
	if k.KeepLeft > 0 && k.State != lockcore.StateFree {
		line("remembered for", age(k.KeepLeft))
	}
	if k.Attempt > 0 {
		line("runs", k.Attempt)
	}
	line("token", k.Token)
	line("processes waiting", k.Queue)
	if k.State == lockcore.StateShared {
		line("weight of its shares", k.Weights)
	}
	for i := range k.Shares {
		line("share", shareText(&k.Shares[i]))
	}
	if k.Parked > 0 {
		line("tasks parked", k.Parked)
		line("oldest parked for", age(k.ParkedFor))
		line("oldest parked", parkedTaskOf(k.OldestParked))
	}
	if r := k.result; r != nil {
		if r.Size != nil {
			line("result", fmt.Sprintf("%d bytes, codec %s", *r.Size, oneLine(r.Codec)))
		}
		if r.Error != "" {
			line("error", oneLine(r.Error))
		}
		switch {
		case r.HTTP != nil:
			r.HTTP.describe(line)
		case r.Text != "":
			line("text", oneLine(r.Text))
		case r.Data != nil:
			line("text", strconv.QuoteToASCII(string(r.Data)))
		}
	}
	return w.Flush()
}

// shareText describes a share in one line.
func shareText(s *lockcore.Share) string {
	limit := "no limit"
	if s.Limit.N != lockcore.Unlimited {
		limit = fmt.Sprintf("weight %d of %d", max(s.Limit.Weight, 1), s.Limit.N)
	}
	if s.Cooling {
		return fmt.Sprintf("%s, released, keeps its place for %s", limit, age(s.Remaining))
	}
	return fmt.Sprintf("%s, by %s for %s, lease left %s", limit, holder(s.Holder), age(s.HeldFor), age(s.Remaining))
}

const revokeText = `%s is held by %s for %s.
Revoking cancels that handler's ctx with the cause ErrRevoked: at once, but not before the lease
is a second old. The key is free when the handler has returned, or when its lease has expired
(%s left), not before. A handler that ignores its ctx continues to run.
`

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
		k, err := inspect(ctx, l, kind, key, false)
		if err != nil {
			return exitFailed, err
		}
		if k.State != lockcore.StateHeld && k.State != lockcore.StateShared {
			fmt.Fprintf(sh.err, "%s is %s, not held: nothing to revoke\n", oneLine(key), state(k))
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
		if k.State == lockcore.StateShared {
			fmt.Fprintf(say, "%s is shared: revoking it ends all its shares, of weight %d together. The last one was granted to:\n", oneLine(key), k.Weights)
		}
		fmt.Fprintf(say, revokeText, oneLine(key), holder(k.Holder), age(k.HeldFor), age(k.Remaining))
		if k.State == lockcore.StateHeld {
			fmt.Fprintf(say, "If its process has died, holdfast clear -force%s frees the key earlier.\n", onceFlag(*once))
		}
		if err := sh.confirm(*yes, "Revoke it?", "not revoked"); err != nil {
			return exitFailed, err
		}
		switch err := l.RevokeIfUnchanged(ctx, kind, key, k.Holding); {
		case errors.Is(err, lockcore.ErrChanged):
			fmt.Fprintf(sh.err, "%s has changed since it was shown: not revoked\n", oneLine(key))
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
	if k, err := inspect(ctx, l, kindOf(!once), key, false); err == nil && k.State != lockcore.StateFree {
		return fmt.Sprintf("the key of %s with that name is %s: try %s", k.Kind, state(k), say)
	}
	return "is that the right key, prefix (-prefix) and kind (-once)?"
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

// weights returns the sum of the weights of a shared key, and the limit if all shares have the
// same.
func weights(k keyed) string {
	if len(k.Shares) == 0 {
		return fmt.Sprintf("weight %d", k.Weights)
	}
	limit := k.Shares[0].Limit.N
	switch {
	case slices.ContainsFunc(k.Shares, func(s lockcore.Share) bool { return s.Limit.N != limit }):
		return fmt.Sprintf("weight %d", k.Weights)
	case limit == lockcore.Unlimited:
		return fmt.Sprintf("weight %d, no limit", k.Weights)
	}
	return fmt.Sprintf("weight %d of %d", k.Weights, limit)
}

// state returns the state of a key in words.
func state(k keyed) string {
	switch {
	case k.State == lockcore.StateShared && k.Revoked:
		return fmt.Sprintf("shared (%s), revoked", weights(k))
	case k.State == lockcore.StateShared:
		return fmt.Sprintf("shared (%s)", weights(k))
	case k.State == lockcore.StateFree && k.NotReleased:
		return "free (last hold was not released; it began " + age(k.HeldFor) + " ago)"
	case k.State == lockcore.StateDone && k.result != nil:
		switch k.result.Outcome {
		case succeeded:
			return "done (ok)"
		case failed:
			text := k.result.Error
			if len(text) > maxFailure {
				text = strings.ToValidUTF8(text[:maxFailure], "") + "…"
			}
			return "done (failed: " + strconv.Quote(text) + ")"
		case notKept:
			return "done (result not kept)"
		}
		return "done (record does not decode)"
	case k.Revoked:
		return string(k.State) + ", revoked"
	}
	return string(k.State)
}

func holder(h event.Holder) string {
	if h == (event.Holder{}) {
		return "-"
	}
	return oneLine(h.String())
}

// age returns a rounded duration, or "-" for none.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// oneLine makes foreign text harmless to a terminal: it escapes characters that are not printable.
func oneLine(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return fmt.Sprintf("%+q", s)
	}
	return s
}
