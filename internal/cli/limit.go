package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// limit restricts a key of Limited, Shared or Throttled to a smaller limit or rate, or ends that.
func (sh *shell) limit(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("limit", " KEY (not with -quorum)")
	n := f.Int("n", 0, "the sum of the weights of calls of Limited and Shared at a time, 1 to 1000000, or their own limit if that is smaller; no effect on Throttled (default: not bounded)")
	rate := f.String("rate", "", "how many calls begin in a time, such as 2/1s; of this and their own rate the slower one counts (default: not bounded)")
	burst := f.Int("burst", 0, "with -rate: how many calls may begin at once; bounds the Burst of the calls too (default 1)")
	d := f.Duration("for", time.Hour, "how long the restriction lasts, 1s to 720h; it replaces an earlier one")
	end := f.Bool("end", false, "end the restriction of the key; without -n, -rate, -burst, -for and -reason")
	reason := f.String("reason", "", "shown by show, at most 256 bytes (default: your name)")
	yes := f.Bool("yes", false, "skip the confirmation")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args, 1); err != nil {
		return exitFailed, err
	}
	if err := alone(f, *end, "n", "rate", "burst", "for", "reason"); err != nil {
		return exitFailed, err
	}
	c := change{key: f.Arg(0), yes: *yes, json: *asJSON, limit: !*end}
	var r lockcore.Restriction
	if *end {
		c.question, c.action = fmt.Sprintf("End the restriction of %s?", operator.OneLine(c.key)), "unrestricted"
		c.nothing = func(k operator.Key) string {
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
			if r.Rate, err = operator.ParseRate(*rate); err != nil {
				return exitFailed, fmt.Errorf("-%w", err)
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
		c.question, c.action = fmt.Sprintf("Restrict %s to %s for %v?", operator.OneLine(c.key), operator.Bounds(r), *d), "restricted"
	}
	c.do = func(l *lockcore.Locker) error { return l.Restrict(ctx, c.key, r) }
	return sh.change(ctx, t, c)
}
