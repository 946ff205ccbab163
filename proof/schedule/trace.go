package schedule

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Trace returns a trace of a schedule that fails. It leaves out steps that the failure does not
// need.
func Trace(s Server, seed uint64) string {
	_, found := play(s, seed, parts{})
	if found == nil {
		return "the schedule does not fail again"
	}
	of := parts{skip: map[int]bool{}, last: found.Step}
	for width := 16; width > 0; width /= 2 {
		for first := 1; first < found.Step; first += width {
			less := parts{skip: maps.Clone(of.skip), last: found.Step}
			for i := first; i < min(first+width, found.Step); i++ {
				less.skip[i] = true
			}
			if _, v := play(s, seed, less); v != nil && v.Check == found.Check {
				of, found = less, v
				of.last = v.Step
			}
		}
	}
	var lines []string
	of.log = func(line string) { lines = append(lines, shorten(line)) }
	_, v := play(s, seed, of)
	return strings.Join(append(lines, shorten(v.Error())), "\n")
}

// longID is an id of the world. A trace shows it without the zeros.
var longID = regexp.MustCompile(`([RLV])0{18}10*([1-9][0-9]*)`)

func shorten(line string) string { return longID.ReplaceAllString(line, "$1$2") }

// String describes a command in a trace.
func (c *command) String() string {
	s := []string{c.id}
	if c.next != "" {
		s = append(s, "next", c.next)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{c.queue, "queue"}, {c.abandon, "abandon"}, {c.repeated, "repeated"}} {
		if f.on {
			s = append(s, f.name)
		}
	}
	for _, f := range []struct {
		us   int64
		name string
	}{{c.lease, "lease"}, {c.cooldown, "cooldown"}} {
		if f.us > 0 {
			s = append(s, f.name, micros(f.us).String())
		}
	}
	if c.from != "" {
		s = append(s, "from", c.from)
	}
	if c.share.Limit > 0 {
		s = append(s, fmt.Sprintf("weight %d of %d", c.share.Weight, c.share.Limit))
	}
	if r := c.share.Rate; r.N > 0 {
		s = append(s, fmt.Sprintf("%d calls, rate %d in %v, burst %d, cost %d", c.calls, r.N, r.Per, r.Burst, r.Cost))
	}
	switch {
	case c.op == acquire && c.mode != exclusive:
		s = append(s, c.mode)
	case c.op == park:
		s = append(s, c.entry, "for", micros(c.keep).String())
	case c.op == unpark:
		s = append(s, fmt.Sprintf("%q marked until %d, wake %d of %q", c.remove, c.marked, c.woken, c.prefix))
	}
	return strings.Join(s, " ")
}

// text describes the reply to a command in a trace.
func text(o op, value any) string {
	switch v := value.(type) {
	case backend.AcquireReply:
		s := [...]string{"busy", "granted", "done", "mismatch", "abandoned", "ended", "admitted"}[v.Outcome]
		switch {
		case v.Outcome == backend.OutcomeAdmitted:
			s += fmt.Sprintf(" %d", v.Calls)
		case v.Exact:
			s += fmt.Sprintf(", turn in %v, place %d", v.Remaining, v.Place)
		case v.Outcome == backend.OutcomeGranted:
			s += fmt.Sprintf(" token %d abandoned %v parked %v", v.Token, v.Abandoned, v.Parked)
		}
		return s
	case backend.ReleaseReply:
		s := fmt.Sprintf("released %v, parked %v", v.Released, v.Parked)
		if o == rotate {
			s += ", " + text(o, v.Next)
		}
		return s
	case backend.Verdict:
		return [...]string{"lost", "kept", "revoked"}[v]
	case nil:
		return "ok"
	default:
		return fmt.Sprintf("%+v", v)
	}
}
