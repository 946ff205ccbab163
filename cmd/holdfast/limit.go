package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// limit restricts a key of Limited, Shared or Throttled to a smaller limit or rate, or ends that.
func (sh *shell) limit(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("limit", " KEY")
	n := f.Int("n", 0, "at most this many calls at a time, or their own limit if that is smaller; 0: their own limit")
	rate := f.String("rate", "", "at most this many calls in a time, such as 2/1s, or their own rate if that is slower")
	burst := f.Int("burst", 0, "with -rate: how many calls may begin at once (default 1)")
	d := f.Duration("for", time.Hour, "how long the restriction lasts, 1s to 720h; it replaces an earlier one")
	end := f.Bool("end", false, "end the restriction of the key")
	reason := f.String("reason", "", "shown by show, at most 256 bytes (default: your name)")
	yes := f.Bool("yes", false, "do not ask for confirmation")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	c := change{key: f.Arg(0), yes: *yes, json: *asJSON}
	var r lockcore.Restriction
	if *end {
		c.question, c.action = fmt.Sprintf("End the restriction of %s?", oneLine(c.key)), "unrestricted"
		c.nothing = func(k keyed) string {
			if k.Restriction.For > 0 {
				return ""
			}
			return "is not restricted"
		}
	} else {
		r = lockcore.Restriction{Limit: *n, For: *d, Reason: *reason}
		if *reason == "" {
			r.Reason = byUser("holdfast limit")
		}
		switch {
		case *rate != "":
			var err error
			if r.Rate, err = parseRate(*rate); err != nil {
				return exitFailed, err
			}
			r.Rate.Burst = *burst
		case *burst != 0:
			return exitFailed, fmt.Errorf("-burst is %d, must be 0 without -rate", *burst)
		case *n == 0:
			return exitFailed, fmt.Errorf("-n is 0 and -rate is empty, one of them must restrict the key; to let no call begin, use holdfast pause")
		}
		if err := r.Validate(); err != nil {
			return exitFailed, err
		}
		c.question, c.action = fmt.Sprintf("Restrict %s to %s for %v?", oneLine(c.key), bounds(r), *d), "restricted"
	}
	c.do = func(l *lockcore.Locker) error { return l.Restrict(ctx, c.key, r) }
	return sh.change(ctx, t, c)
}

// parseRate parses the value of -rate, such as 20/1s.
func parseRate(text string) (lockcore.Rate, error) {
	n, per, found := strings.Cut(text, "/")
	count, errN := strconv.Atoi(n)
	d, errPer := time.ParseDuration(per)
	if !found || errN != nil || errPer != nil || count < 1 || d <= 0 {
		return lockcore.Rate{}, fmt.Errorf("-rate is %q, must be a number of calls and a time, such as 20/1s", text)
	}
	return lockcore.Rate{N: count, Per: d}, nil
}

func rateText(r lockcore.Rate) string { return fmt.Sprintf("%d/%v", r.N, r.Per) }

// bounds describes what a restriction allows.
func bounds(r lockcore.Restriction) string {
	var parts []string
	if r.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d at a time", r.Limit))
	}
	if r.Rate.N > 0 {
		parts = append(parts, fmt.Sprintf("%s with burst %d", rateText(r.Rate), max(r.Rate.Burst, 1)))
	}
	return strings.Join(parts, " and ")
}
