package schedule

import "github.com/holdfast-go/holdfast/internal/backend"

// invariants judges a schedule without package rules, so that it finds a mistake that the scripts
// and the rules have in common. It knows only what the processes know, and the replies of the
// server, also those that no process receives.
type invariants struct {
	procs []*process
	off   bool // the server's clock was set back: leases and tokens rely on it

	token  int64  // the greatest token of a hold that began
	phase  string // of that hold, if it was a share
	ended  map[string]bool
	shares map[string]bool // requests that were granted a share, or got their turn

	record    string // of the last completion
	completed string // the grant that stored it
	until     int64  // the end of the record
	noRun     int64  // no run begins before this time
}

// replied judges the reply to a command.
func (v *invariants) replied(now int64, c *command, reply any) {
	if v.off {
		return
	}
	switch reply := reply.(type) {
	case backend.AcquireReply:
		v.acquired(now, c.id, c.share, &reply)
	case backend.AdoptReply:
		if reply.Verdict == backend.VerdictKept {
			v.ended[c.from] = true
			v.granted(now, c.id, c.share)
		}
	case backend.ClearReply:
		if reply == backend.Cleared {
			v.noRun = 0 // or it was a repeat, which has no effect
		}
	case backend.ReleaseReply:
		if v.ended[c.id] = true; c.op == complete && reply.Released {
			v.completes(now, c)
		}
		if c.op == rotate {
			v.acquired(now, c.next, c.share, &reply.Next)
		}
	}
	if c.op == withdraw {
		v.ended[c.id] = true
	}
}

func (v *invariants) acquired(now int64, id string, share backend.Share, reply *backend.AcquireReply) {
	switch reply.Outcome {
	case backend.OutcomeGranted:
		v.granted(now, id, share)
	case backend.OutcomeDone:
		if string(reply.Record) != v.record || now > v.until+1000 {
			fail("record", "%s gets the record %q, want %q", id, reply.Record, v.record)
		}
	default:
	}
}

// granted judges a grant: no other process holds the key by its own clock, unless both have a
// share and the new one fits, the request has not ended, and a once key has no record.
func (v *invariants) granted(now int64, id string, share backend.Share) {
	weights := share.Weight
	for _, p := range v.procs {
		if !p.holds() || p.hold.id == id {
			continue
		}
		if weights += p.hold.share.Weight; share.Limit == 0 || p.hold.share.Limit == 0 {
			fail("holder", "%s is granted, and P%d holds the key under %s", id, p.n, p.hold.id)
		}
	}
	switch {
	case v.ended[id]:
		fail("ended", "%s is granted, and it has ended", id)
	case now < v.noRun-1000:
		fail("record", "%s is granted, and the key has the record %q", id, v.record)
	case share.Limit > 0 && !v.shares[id] && weights > share.Limit:
		fail("limit", "%s is granted a share, and the weights are %d of %d", id, weights, share.Limit)
	}
	v.shares[id] = true
}

// turn records that a waiter has its turn, and perhaps a share. Other shares may begin before it
// sends its request again.
func (v *invariants) turn(id string) { v.shares[id] = true }

func (v *invariants) completes(now int64, c *command) {
	switch {
	case c.id == v.completed: // a repeat
	case now < v.noRun-1000:
		fail("record", "%s replaces the record of %s", c.id, v.completed)
	default:
		v.record, v.completed, v.until, v.noRun = c.record, c.id, now+c.keep, now+c.keep
	}
}

// begins judges the token of a hold that begins: it is greater than that of each hold before. The
// shares of a phase have one token.
func (v *invariants) begins(id string, token int64, phase string) {
	if v.off {
		return
	}
	if token < v.token || token == v.token && (phase == "" || phase != v.phase) {
		fail("token", "a hold of %s begins with token %d after %d", id, token, v.token)
	}
	v.token, v.phase = token, phase
}

// holders judges which processes hold the key by their own clocks: one, or several that have
// shares.
func (v *invariants) holders() {
	var one *process
	for _, p := range v.procs {
		if !p.holds() {
			continue
		}
		if one != nil && (one.hold.share.Limit == 0 || p.hold.share.Limit == 0) {
			fail("holder", "P%d holds the key under %s, and P%d under %s", one.n, one.hold.id, p.n, p.hold.id)
		}
		one = p
	}
}
