package cronmw

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/robfig/cron/v3"
)

// plan is a schedule and its zone.
type plan struct {
	cron.Schedule
	zone *time.Location
	text string // spec and zone, which identify the ticks in notes of the job; without SkipRepeated
}

// parser parses the five standard fields, an optional field for seconds before them, and
// descriptors.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// checkSpec returns spec without surrounding space, and with one space behind a zone: robfig's
// parser takes all up to the first space for the zone. It returns an error for a spec that has other
// ticks on each instance, and for one on which that parser panics: a zone without fields.
func checkSpec(spec string) (string, error) {
	spec = strings.TrimSpace(spec)
	rest := spec
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		end := strings.IndexFunc(spec, unicode.IsSpace)
		if end < 0 {
			return "", fmt.Errorf("cronmw: spec %q has a zone and nothing else", spec)
		}
		rest = strings.TrimSpace(spec[end:])
		spec = spec[:end] + " " + rest
	}
	switch {
	case strings.HasPrefix(rest, "@every"):
		return "", fmt.Errorf("cronmw: spec %q counts from the start of the process, so each instance has other ticks: use Jobs.Every, or fields such as */5", spec)
	case strings.HasPrefix(rest, "@reboot"):
		return "", fmt.Errorf("cronmw: spec %q has no ticks that instances can share: call guard.Once at the start of the program", spec)
	}
	return spec, nil
}

// newPlan returns the plan of s. zone is the zone of a spec that names none. text is the spec.
// newPlan returns an error for a constant delay, and for a schedule without a tick after now.
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

// steady has the same ticks for every start of Next. robfig's Next counts the hours from its start,
// across a change of the zone's clocks. If the clocks change by half an hour, it skips the next
// midnight. If midnight occurs twice, it can return a time before its start. So Next of steady
// searches the time after a change again, from several starts within it.
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

const affected = 26 * time.Hour // how long a change affects the times after it: up to the midnight after the next one

// every has its ticks at the multiples of a duration since the Unix epoch, in all processes.
type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d, unix := int64(time.Duration(e)/time.Second), t.Unix()
	into := unix % d
	if into < 0 {
		into += d
	}
	return time.Unix(unix-into+d, 0).In(t.Location())
}

// noRepeats is a schedule without the ticks in the second pass of an hour that the zone repeats.
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

// repeated reports whether the clocks of t's zone have shown the time of t before. That is so if
// they were set back by some time, and less than that time has passed since then.
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
	passed := func(ago time.Duration) bool { // there is a tick after now-ago and not after now
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

// gap returns the time from a tick to the next one.
func (p plan) gap(at time.Time) time.Duration {
	next := p.Next(at)
	if next.IsZero() {
		return maxKeep
	}
	return next.Sub(at)
}
