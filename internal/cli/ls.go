package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	listPage   = 1000 // keys that ls sorts and prints together, so that a long list needs no more memory
	maxPattern = 512  // as in doctor.ListOptions.Match
)

// ls prints the keys that are not free.
func (sh *shell) ls(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("ls", "")
	match := f.String("match", "*", "glob `pattern` of the key: *, ?, [a-z]")
	once := f.Bool("once", false, "only keys of Once")
	exclusive := f.Bool("exclusive", false, "only keys of Exclusive")
	all := f.Bool("all", false, "also list free keys with parked tasks, a limit or waiting processes, and those whose last hold was not released")
	most := f.Int("max", listPage, "print no more than this many")
	limit := durationFlag(f, "timeout", time.Minute, "stop after this `duration`, and print what was found")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 0); err != nil {
		return exitFailed, err
	}
	o := doctor.ListOptions{Match: *match, Free: *all, RecordHeads: true}
	switch {
	case *once && *exclusive:
		return exitFailed, errors.New("-once and -exclusive exclude each other")
	case *most < 1:
		return exitFailed, fmt.Errorf("-max is %d, must be 1 or more", *most)
	case *limit <= 0:
		return exitFailed, fmt.Errorf("-timeout is %v, must be more than 0s", *limit)
	case len(*match) > maxPattern:
		return exitFailed, fmt.Errorf("-match is %d bytes long, must be at most %d", len(*match), maxPattern)
	case *once:
		o.Kind = event.KindOnce
	case *exclusive:
		o.Kind = event.KindExclusive
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not done within %v; a longer -timeout helps, or a time of less load", *limit))
	defer cancel()
	return sh.with(t, func(l *lockcore.Locker) (int, error) {
		p := &pages{out: bufio.NewWriter(sh.out), asJSON: *asJSON}
		cut, err := p.list(ctx, l, o, *most)
		ended := err != nil && backend.Ended(ctx) // by -timeout or a signal; the error may be that of a connection with the same deadline
		if ended {
			<-ctx.Done()
			err = context.Cause(ctx)
		}
		if err != nil && p.found() == 0 {
			return exitFailed, err
		}
		if err := p.close(err == nil && !cut); err != nil {
			return exitFailed, err
		}
		switch {
		case ended:
			fmt.Fprintf(sh.err, "%v\nThe list is incomplete: keys found so far: %d.\n", err, p.found())
			return exitProblem, nil
		case err != nil:
			return exitFailed, hintedError{err, fmt.Sprintf("The list is incomplete: keys found before the error: %d.", p.found())}
		case *asJSON: // complete has the same information
		case cut:
			fmt.Fprintf(sh.err, "there are more than %d: see -match and -max\n", *most)
		case p.found() == 0:
			fmt.Fprintln(sh.err, "no keys: no key is held or stored under this prefix, pattern and kind (-prefix, -schema, -match, -once, -exclusive)")
		}
		return exitOK, nil
	})
}

// named identifies a key.
type named struct {
	kind event.Kind
	key  string
}

// pages prints a list of keys in pages of listPage. It sorts each page, and removes keys that List
// yielded twice within the page.
type pages struct {
	out     *bufio.Writer
	asJSON  bool
	page    map[named]operator.Key
	printed int // keys of earlier pages
	widths  [8]int
}

// found returns the number of keys so far.
func (p *pages) found() int { return p.printed + len(p.page) }

// list prints at most most keys, except those of the last page. cut reports that there are more.
func (p *pages) list(ctx context.Context, l *lockcore.Locker, o doctor.ListOptions, most int) (cut bool, err error) {
	p.page = map[named]operator.Key{}
	for e, err := range doctor.List(ctx, l, o) {
		if err != nil {
			return false, err
		}
		n := named{e.Kind, e.Key}
		if _, again := p.page[n]; !again && p.found() == most {
			return true, nil
		} else if !again && len(p.page) == listPage {
			if err := p.flush(); err != nil {
				return false, err
			}
		}
		k := operator.Key{Entry: e}
		if e.State == lockcore.StateDone {
			k.Result = operator.HeadOf(e.RecordHead)
		}
		p.page[n] = k
	}
	return false, nil
}

// flush prints the page.
func (p *pages) flush() error {
	page := slices.SortedFunc(maps.Values(p.page), func(a, b operator.Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
	})
	if p.asJSON {
		if err := p.objects(page); err != nil {
			return err
		}
	} else {
		p.rows(page)
	}
	p.printed = p.found()
	clear(p.page)
	return p.out.Flush()
}

// close prints the last page and the end of the list.
func (p *pages) close(complete bool) error {
	switch {
	case p.asJSON:
		if err := p.flush(); err != nil {
			return err
		}
		if p.printed > 0 {
			fmt.Fprint(p.out, "\n  ")
		}
		fmt.Fprintf(p.out, "],\n  \"complete\": %t\n}\n", complete)
		return p.out.Flush()
	case p.found() > 0:
		return p.flush()
	}
	return nil
}

// rows prints keys as lines of a table. A column is as wide as its widest cell so far.
func (p *pages) rows(page []operator.Key) {
	var rows [][len(p.widths)]string
	if p.printed == 0 {
		rows = append(rows, [...]string{"KIND", "STATE", "KEY", "HOLDER", "FOR", "LEFT", "WAITING", "PARKED"})
	}
	for _, k := range page {
		left := cmp.Or(k.Remaining, k.KeepLeft)
		if k.State == lockcore.StateFree {
			left = 0 // nothing extends it
		}
		rows = append(rows, [...]string{
			k.Kind.String(), k.StateText() + k.BoundText(), operator.OneLine(k.Key), operator.Holder(k.Holder), operator.Age(k.HeldFor), operator.Age(left), k.WaitingText(), strconv.Itoa(k.Parked),
		})
	}
	for i := range p.widths {
		for _, row := range rows {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		last := len(row) - 1
		for i, cell := range row[:last] {
			fmt.Fprintf(p.out, "%-*s  ", p.widths[i], cell)
		}
		fmt.Fprintln(p.out, row[last])
	}
}

// objects prints keys as elements of the JSON object that the type keys describes, and its start.
// close prints its end.
func (p *pages) objects(page []operator.Key) error {
	if p.printed == 0 {
		fmt.Fprintf(p.out, "{\n  \"as_of\": %q,\n  \"keys\": [", now().Format(time.RFC3339))
	}
	for i := range page {
		text, err := jsonText(page[i].JSON(), "    ")
		if err != nil {
			return err
		}
		if p.printed+i > 0 {
			fmt.Fprint(p.out, ",")
		}
		fmt.Fprint(p.out, "\n    ", text)
	}
	return nil
}
