package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/lockcore"
)

// ls prints the keys that are not free.
func (sh *shell) ls(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("ls", "")
	match := f.String("match", "*", "glob `pattern` of the key: *, ?, [a-z]")
	once := f.Bool("once", false, "only keys of Once")
	exclusive := f.Bool("exclusive", false, "only keys of Exclusive")
	most := f.Int("max", 1000, "print no more than this many")
	limit := durationFlag(f, "timeout", time.Minute, "give up after this `duration`")
	if err := parse(f, args, 0); err != nil {
		return exitFailed, err
	}
	o := lockcore.ListOptions{Match: *match}
	switch {
	case *once && *exclusive:
		return exitFailed, errors.New("-once and -exclusive exclude each other")
	case *once:
		o.Kind = lockcore.KindOnce
	case *exclusive:
		o.Kind = lockcore.KindExclusive
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done within %v; a longer -timeout helps, and so does another time of the day", *limit))
	defer cancel()
	return sh.with(t, func(l *lockcore.Locker) (int, error) { return sh.list(ctx, l, o, *most) })
}

func (sh *shell) list(ctx context.Context, l *lockcore.Locker, o lockcore.ListOptions, most int) (int, error) {
	type name struct {
		kind lockcore.Kind
		key  string
	}
	found, cut := map[name]lockcore.Entry{}, false
	for e, err := range l.List(ctx, o) {
		if err != nil {
			return exitFailed, err
		}
		n := name{e.Kind, e.Key}
		if _, again := found[n]; !again && len(found) >= most {
			cut = true
			break
		}
		found[n] = e
	}
	entries := slices.SortedFunc(maps.Values(found), func(a, b lockcore.Entry) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
	})
	if len(entries) == 0 {
		fmt.Fprintln(sh.err, "no keys: nothing is held or remembered under this prefix and pattern (-prefix, -match)")
		return exitOK, nil
	}
	w := tabwriter.NewWriter(sh.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tSTATE\tKEY\tHOLDER\tFOR\tLEFT\tQUEUE")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", e.Kind, state(e.Holding), oneLine(e.Key), holder(e.Holder), age(e.HeldFor), age(cmp.Or(e.Remaining, e.KeepLeft)), e.Queue)
	}
	if err := w.Flush(); err != nil {
		return exitFailed, err
	}
	if cut {
		fmt.Fprintf(sh.err, "there are more than %d: see -match and -max\n", most)
	}
	return exitOK, nil
}

// show prints all that is known of a key.
func (sh *shell) show(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("show", " KEY")
	once := f.Bool("once", false, "a key of Once, not of Exclusive")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		h, err := l.Inspect(ctx, kindOf(*once), f.Arg(0))
		if err != nil {
			return exitFailed, err
		}
		if err := sh.describe(kindOf(*once), f.Arg(0), h); err != nil {
			return exitFailed, err
		}
		if h.State == lockcore.StateFree {
			fmt.Fprintln(sh.err, sh.elsewhere(ctx, l, *once, f.Arg(0)))
			return exitProblem, nil
		}
		return exitOK, nil
	})
}

// elsewhere says where a key may be that is free.
func (sh *shell) elsewhere(ctx context.Context, l *lockcore.Locker, once bool, key string) string {
	other, say := kindOf(!once), "-once"
	if once {
		say = "without -once"
	}
	if h, err := l.Inspect(ctx, other, key); err == nil && h.State != lockcore.StateFree {
		return fmt.Sprintf("nobody holds it; but the key of %s with that name is %s: try %s", other, h.State, say)
	}
	return "nobody holds it; is that the right key, prefix (-prefix) and kind (-once)?"
}

func (sh *shell) describe(kind lockcore.Kind, key string, h lockcore.Holding) error {
	w := tabwriter.NewWriter(sh.out, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(w, "%s\t%v\n", name, v) }
	line("key", oneLine(key))
	line("kind", kind)
	line("state", state(h))
	if h.State != lockcore.StateFree {
		line("holder", holder(h.Holder))
		if h.Holder.Traceparent != "" {
			line("trace", oneLine(h.Holder.Traceparent))
		}
		line("for", age(h.HeldFor))
	}
	if h.Remaining > 0 {
		line("lease left", age(h.Remaining))
	}
	if h.KeepLeft > 0 {
		line("remembered for", age(h.KeepLeft))
	}
	if h.Attempt > 0 {
		line("runs", h.Attempt)
	}
	line("token", h.Token)
	line("processes in line", h.Queue)
	return w.Flush()
}

const revokeText = `%s is held by %s for %s.
Revoking cancels that handler's ctx with the cause ErrRevoked: at once, or within about a third of its lease if that process does not
listen yet. The key is free when the handler has returned, or when its lease is over (%s left), not before. A handler that takes no
notice goes on.
`

// revoke takes a key away, after a question.
func (sh *shell) revoke(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("revoke", " KEY")
	once := f.Bool("once", false, "a key of Once, not of Exclusive")
	yes := f.Bool("yes", false, "do not ask")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	kind, key := kindOf(*once), f.Arg(0)
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		h, err := l.Inspect(ctx, kind, key)
		if err != nil {
			return exitFailed, err
		}
		if h.State != lockcore.StateHeld {
			fmt.Fprintf(sh.err, "%s is %s, not held: nothing to revoke\n", oneLine(key), h.State)
			if h.State == lockcore.StateFree {
				fmt.Fprintln(sh.err, sh.elsewhere(ctx, l, *once, key))
			}
			return exitProblem, nil
		}
		fmt.Fprintf(sh.out, revokeText, oneLine(key), holder(h.Holder), age(h.HeldFor), age(h.Remaining))
		if !*yes {
			if err := sh.confirm(); err != nil {
				return exitFailed, err
			}
		}
		if err := l.Revoke(ctx, kind, key); err != nil {
			return exitFailed, err
		}
		fmt.Fprintln(sh.out, "revoked")
		return exitOK, nil
	})
}

// confirm asks whoever sits at the terminal.
func (sh *shell) confirm() error {
	if !sh.terminal {
		return errors.New("nobody can be asked here, for this is no terminal: say -yes")
	}
	fmt.Fprint(sh.out, "Revoke it? (yes/no) ")
	answer, _ := bufio.NewReader(sh.in).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("not revoked")
	}
	return nil
}

func kindOf(once bool) lockcore.Kind {
	if once {
		return lockcore.KindOnce
	}
	return lockcore.KindExclusive
}

func state(h lockcore.Holding) string {
	if h.Revoked {
		return string(h.State) + ", revoked"
	}
	return string(h.State)
}

func holder(h lockcore.Holder) string {
	if h == (lockcore.Holder{}) {
		return "-"
	}
	return oneLine(h.String())
}

// age is a duration as people say it; "-" for none.
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

// oneLine makes text of others harmless to a terminal: what cannot be seen is written as an escape.
func oneLine(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return fmt.Sprintf("%+q", s)
	}
	return s
}
