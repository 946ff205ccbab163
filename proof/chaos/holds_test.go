package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	// recovery is the time that lockcore promises to a waiter behind a dead holder, after its lease.
	recovery = 250 * time.Millisecond
	// joinTime is longer than the time during which calls of the same process may join a lease or
	// take it over. So a lease may be that much older than the call that has it.
	joinTime = 10 * time.Millisecond
)

// hold is a hold as the journal has it. It counts from the time when its worker saw it first to the
// last time at which it was valid: a stopped process learns of the loss of its lease only when it
// goes on. All times are ns of the machine's clock.
type hold struct {
	proc, key           string
	limit, weight       int
	token               int64
	called, seen, valid int64
	over                bool  // its last act is in the journal,
	lost                bool  // and the lease was lost before it
	read                int64 // from the register
}

func (h *hold) String() string {
	return fmt.Sprintf("%s of %s, token %d, limit %d, weight %d, from %d to %d", h.key, h.proc, h.token, h.limit, h.weight, h.seen, h.valid)
}

// judgeHolds judges the holds of each key. A key is in order if, whenever a hold begins,
//
//   - an exclusive hold is alone,
//   - a share is beside no exclusive hold, and has the token of the other shares,
//   - the token is not smaller than the token of any hold that has ended, and greater if one of both
//     is exclusive,
//   - the shares can have been granted one after the other, each within its own limit: Redis may
//     grant a share some time before the waiter learns of it,
//   - the key was not free for long while the call waited.
func (o *oracle) judgeHolds(v *verdict, must rules) {
	byKey := map[string][]*hold{}
	for _, h := range o.holds {
		byKey[h.key] = append(byKey[h.key], h)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		holds := byKey[key]
		slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(a.seen, b.seen) })
		var now []*hold
		last := &hold{} // that is over, with the greatest token
		idleSince := int64(0)
		for _, h := range holds {
			now = slices.DeleteFunc(now, func(p *hold) bool {
				if p.valid >= h.seen {
					return false
				}
				if p.token > last.token {
					last = p
				}
				return true
			})
			o.judgeBeside(v, must, h, now, last)
			if h.limit == 0 && !slices.Contains(shareKeys, key) {
				o.judgeIdle(v, must, h, idleSince)
			}
			now = append(now, h)
			if bad := tooHeavy(now); bad != "" {
				v.fail("weight", "%s: %s", key, bad)
			}
			idleSince = max(idleSince, o.stop(h))
		}
	}
	if n := len(o.blind)/4 + 2; v.hidden > n {
		v.fail("idle", "%d times a key was free for a lease and nobody is known to have held it, with %d processes that died or stopped at an unknown point", v.hidden, len(o.blind))
	}
}

// judgeBeside judges h beside the holds that are valid when it begins.
func (o *oracle) judgeBeside(v *verdict, must rules, h *hold, others []*hold, last *hold) {
	alone := true
	for _, other := range others {
		if h.limit != 0 && other.limit != 0 {
			if other.token != h.token {
				v.fail("token", "%v, beside %v", h, other)
			}
			continue
		}
		alone = false
		v.overlaps++
		both := time.Duration(min(h.valid, other.valid) - h.seen)
		v.longestOverlap = max(v.longestOverlap, both)
		if !must.overlaps || both > must.lease || !o.mayOverlap(h.seen, must.lease) {
			v.fail("overlap", "%v: %v, and %v", both, other, h)
		}
	}
	grows := h.token > last.token || h.token == last.token && h.limit != 0 && last.limit != 0
	if !grows && alone && !(must.overlaps && o.failedBefore(h.seen)) {
		v.fail("token", "%v, after %v", h, last)
	}
}

// mayOverlap reports whether a server has failed at a time, or served again less than a lease
// before.
func (o *oracle) mayOverlap(at int64, lease time.Duration) bool {
	failed := latest(o.failed, at)
	i, _ := slices.BinarySearch(o.healed, failed)
	return failed > 0 && (i == len(o.healed) || at <= o.healed[i]+int64(lease))
}

// judgeIdle checks that h was not granted late. since is the end of the holds before it. A process
// that is stopped does not wait.
func (o *oracle) judgeIdle(v *verdict, must rules, h *hold, since int64) {
	since = max(since, h.called, latest(o.touched[h.key], h.seen), latest(o.resumed[h.proc], h.seen), latest(o.healed, h.seen))
	idle := time.Duration(h.seen - since)
	limit := must.gap + beat
	if idle > limit {
		limit += o.late(since, h.seen)
	}
	v.longestIdle = max(v.longestIdle, idle)
	switch {
	case idle <= limit:
	case h.seen-latest(o.blind, h.seen) <= int64(limit): // a hold that is in no line
		v.hidden++
	default:
		v.fail("idle", "%v waited while the key was free for %v, at most %v", h, idle, limit)
	}
}

// latest returns the last time until end, or 0. The times are sorted.
func latest(times []int64, end int64) int64 {
	i, found := slices.BinarySearch(times, end)
	if found {
		return end
	}
	if i == 0 {
		return 0
	}
	return times[i-1]
}

// stop returns the time at which h ended, as far as it is known.
func (o *oracle) stop(h *hold) int64 {
	if d := o.deaths[h.proc]; d != nil && !h.over {
		return max(h.valid, d.at)
	}
	return h.valid
}

// tooHeavy looks for an order of grants in which each share was within its limit. It removes, one
// after the other, a share that may have been granted last: a grant is between the call and the
// time when the worker saw the hold.
func tooHeavy(shares []*hold) string {
	left := slices.DeleteFunc(slices.Clone(shares), func(h *hold) bool { return h.limit == 0 })
	for len(left) > 0 {
		weight := weigh(left)
		last := slices.IndexFunc(left, func(h *hold) bool {
			return (h.limit <= 0 || weight <= h.limit) &&
				!slices.ContainsFunc(left, func(other *hold) bool { return h.seen < other.called-int64(joinTime) })
		})
		if last < 0 {
			var b strings.Builder
			for _, h := range left {
				fmt.Fprintf(&b, "\n\t%v", h)
			}
			return fmt.Sprintf("no order of grants explains a weight of %d:%s", weight, b.String())
		}
		left = slices.Delete(left, last, last+1)
	}
	return ""
}

// weigh returns the least total weight that the shares can have. Readers of one process may have
// one lease.
func weigh(shares []*hold) (weight int) {
	readers := map[string]bool{}
	for _, h := range shares {
		if h.limit == lockcore.Unlimited {
			readers[h.proc] = true
		} else {
			weight += h.weight
		}
	}
	return weight + len(readers)
}
