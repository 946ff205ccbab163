package cronmw

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// plan is a schedule and the zone in which it thinks.
type plan struct {
	cron.Schedule
	zone *time.Location
	text string // the same text means the same ticks
}

// parser reads the standard five fields, a sixth one in front for seconds, and the descriptors.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// checkSpec refuses what means another tick on each instance, and what robfig's parser panics at.
func checkSpec(spec string) (string, error) {
	spec = strings.TrimSpace(spec)
	rest := spec
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		var found bool
		if _, rest, found = strings.Cut(spec, " "); !found {
			return "", fmt.Errorf("cronmw: spec %q has a zone and nothing else", spec)
		}
		rest = strings.TrimSpace(rest)
	}
	switch {
	case strings.HasPrefix(rest, "@every"):
		return "", fmt.Errorf("cronmw: spec %q counts from the start of the process, so that each instance has ticks of its own: use Jobs.Every, or fields such as */5", spec)
	case strings.HasPrefix(rest, "@reboot"):
		return "", fmt.Errorf("cronmw: spec %q has no tick that instances could share: call guard.Once at the start of the program", spec)
	}
	return spec, nil
}

// newPlan completes a schedule. Specs without a zone think in zone.
func newPlan(s cron.Schedule, zone *time.Location, text string, skipRepeated bool, now time.Time) (plan, error) {
	switch s := s.(type) {
	case *cron.SpecSchedule:
		if s.Location != time.Local {
			zone = s.Location
		}
	case cron.ConstantDelaySchedule, *cron.ConstantDelaySchedule:
		return plan{}, errors.New("cronmw: a constant delay counts from the start of the process: use Jobs.Every")
	}
	s = steady{s, zone}
	if skipRepeated {
		s = noRepeats{s, zone}
	}
	if s.Next(now.In(zone)).IsZero() {
		return plan{}, fmt.Errorf("cronmw: spec %q has no tick in the next five years", text)
	}
	return plan{s, zone, text + " " + zone.String()}, nil
}

// steady has the same ticks from wherever it is asked. robfig's Next counts the hours from where it begins, across a
// change of the clocks: where that is of half an hour, it passes over the next midnight, and where midnight comes twice,
// it goes back. So the time after a change is asked for again, from points of it.
type steady struct {
	cron.Schedule
	zone *time.Location
}

func (s steady) Next(t time.Time) time.Time {
	from := t.In(s.zone)
	next := s.Schedule.Next(from)
	for p := from; !next.IsZero() && !next.After(from); next = s.Schedule.Next(p) {
		p = p.Add(30 * time.Minute)
	}
	start, end := from.ZoneBounds()
	for !next.IsZero() {
		for after := -time.Second; after < affected && !start.IsZero() && start.Add(after).Before(next); after += 30 * time.Minute {
			if p := start.Add(after); p.After(from) {
				if at := s.Schedule.Next(p); at.After(from) && at.Before(next) {
					next = at
				}
			}
		}
		if end.IsZero() || !end.Before(next) {
			break
		}
		start, end = end.ZoneBounds()
	}
	return next.In(t.Location())
}

const affected = 26 * time.Hour // by a change: up to the midnight after the next

// every has its ticks at the multiples of a duration since the Unix epoch, whichever process asks.
type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d, unix := int64(time.Duration(e)/time.Second), t.Unix()
	into := unix % d
	if into < 0 {
		into += d
	}
	return time.Unix(unix-into+d, 0).In(t.Location())
}

// noRepeats leaves out the second pass of an hour that the zone repeats.
type noRepeats struct {
	cron.Schedule
	zone *time.Location
}

func (s noRepeats) Next(t time.Time) time.Time {
	for {
		t = s.Schedule.Next(t)
		if t.IsZero() || !repeated(t.In(s.zone)) {
			return t
		}
	}
}

// repeated says whether the clocks of t's zone have shown this time before: they went back, and t is less than that after
// it.
func repeated(t time.Time) bool {
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return false
	}
	_, before := start.Add(-1).Zone()
	_, now := t.Zone()
	return t.Sub(start) < time.Duration(before-now)*time.Second
}

// latest returns the latest tick that is not after now, if there is one within a year.
func (p plan) latest(now time.Time) (time.Time, bool) {
	passed := func(ago time.Duration) bool { // a tick lies between then and now
		next := p.Next(now.Add(-ago))
		return !next.IsZero() && !next.After(now)
	}
	near, far := time.Duration(0), time.Second
	for !passed(far) {
		if near, far = far, 2*far; near > maxKeep {
			return time.Time{}, false
		}
	}
	for far-near > time.Millisecond { // passed(far), not passed(near)
		if mid := near + (far-near)/2; passed(mid) {
			far = mid
		} else {
			near = mid
		}
	}
	return p.Next(now.Add(-far)), true
}

// gap is the time from a tick to the next.
func (p plan) gap(at time.Time) time.Duration {
	next := p.Next(at)
	if next.IsZero() {
		return maxKeep
	}
	return next.Sub(at)
}
