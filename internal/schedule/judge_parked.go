package schedule

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// parked has the parked entries that the server must have.
type parked struct {
	entries []parkedEntry // by their first parking
	until   int64         // when they end
	flag    bool          // replies may say that there are entries
	certain int64         // replies must say so until then, if flag is set
}

type parkedEntry struct {
	name         string
	since, woken int64
}

// expire removes the entries that have ended.
func (p *parked) expire(now int64) {
	if now >= p.until {
		p.entries, p.until = nil, 0
	}
}

func (p *parked) at(name string) int {
	return slices.IndexFunc(p.entries, func(e parkedEntry) bool { return e.name == name })
}

// says judges whether a reply reports parked entries correctly. A reply may end the flag.
func (j *judge) says(c *command, parked bool) {
	p := &j.parked
	if parked && !p.flag || !parked && p.flag && j.now < p.certain {
		fail("P", "%v of %s reports parked entries: %v", c.op, c.id, parked)
	}
	p.flag = parked
}

// keeps records how long the data of the key is kept.
func (j *judge) keeps(us int64) { j.parked.certain = j.now + us }

// keepsParked records that a command may have shortened the time for which the data of the key is
// kept. If the key may have entries, that time is at least backend.ParkedTTL.
func (j *judge) keepsParked() {
	switch {
	case !j.parked.flag:
		j.keeps(0)
	case j.now < j.parked.certain:
		j.keeps(backend.ParkedTTL.Microseconds())
	}
}

// frees judges the reply to a release or a completion.
func (j *judge) frees(c *command, r *reply) {
	if j.reserved == "" && j.coolUntil <= j.now {
		j.says(c, r.parked)
	} else if r.parked {
		fail("P", "%v of %s reports parked entries: %v, and the key is not free", c.op, c.id, r.parked)
	}
	j.keepsParked()
}

func (j *judge) parks(c *command, r *reply) {
	p := &j.parked
	p.expire(j.now)
	var want backend.ParkReply
	switch i := p.at(c.entry); {
	case !j.live() && j.now >= j.reservedUntil && j.now >= j.coolUntil:
	case i < 0 && len(p.entries) >= mostParked:
		want = backend.ParkReply{Outcome: backend.ParkFull, Count: len(p.entries), Oldest: micros(j.now - p.entries[0].since)}
	default:
		if i < 0 {
			p.entries = append(p.entries, parkedEntry{name: c.entry, since: j.now})
			slices.SortFunc(p.entries, func(a, b parkedEntry) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.name, b.name)) })
			i = p.at(c.entry)
		}
		p.entries[i].woken = 0
		if (p.until-j.now)/1000*1000 < c.keep {
			p.until = j.now + c.keep
		}
		p.flag, p.certain = true, max(p.certain, j.now+backend.ParkedTTL.Microseconds())
		want = backend.ParkReply{
			Outcome: backend.Parked, Before: i, Count: len(p.entries), Age: micros(j.now - p.entries[i].since), Oldest: micros(j.now - p.entries[0].since),
		}
	}
	if r.park != want {
		fail("P", "the parking of %q returns %+v, want %+v", c.entry, r.park, want)
	}
}

func (j *judge) unparks(c *command, r *reply) {
	p := &j.parked
	p.expire(j.now)
	before := len(p.entries)
	p.entries = slices.DeleteFunc(p.entries, func(e parkedEntry) bool {
		ours := e.woken <= c.marked && e.woken > j.now-backend.WokenTime.Microseconds()
		return slices.Contains(c.remove, e.name) && (c.marked == 0 || ours)
	})
	woken := 0
	for i := range p.entries {
		e := &p.entries[i]
		if e.woken <= j.now-backend.WokenTime.Microseconds() {
			e.woken = 0
		}
		woken += int(count(e.woken != 0 && strings.HasPrefix(e.name, c.prefix)))
	}
	var wake []string
	for i := range p.entries {
		if e := &p.entries[i]; woken+len(wake) < c.woken && e.woken == 0 && strings.HasPrefix(e.name, c.prefix) {
			e.woken = j.now
			wake = append(wake, e.name)
		}
	}
	if len(p.entries) == 0 {
		p.flag, p.until = false, 0
	}
	if u := r.unpark; u.Removed != before-len(p.entries) || u.Count != len(p.entries) || !slices.Equal(u.Wake, wake) || u.Marked != j.now {
		fail("P", "%v returns %+v, want %d left and %q woken", c.op, u, len(p.entries), wake)
	}
}
