package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of parked entries. They have the form of those in rules.go. The
// entries are not part of the data of the key, and have their own TTL. The data only contains
// waker: if it is set, there may be entries. So callers send no command for a key without entries.

const (
	maxLooked = 1000 // maximum number of entries, the oldest first, that one request examines to wake some
	parkedTTL = span(backend.ParkedTTL / time.Microsecond)
)

// parkedEntry is a parked entry: the text that names a task outside of its worker.
type parkedEntry struct {
	since instant // of its first parking
	text  string
	woken instant // when it was marked as woken; 0: it is not woken
}

// park adds an entry to a key that another request has. An entry that is parked again keeps its
// place, and no longer counts as woken.
func park(k key, r *backend.ParkRequest, e env) (key, backend.ParkReply) {
	k.expire(e.now)
	stored := k
	k.clampEnd(e.now)
	if !k.plain {
		stored = k
	}
	if !k.live(e.now) {
		return stored, backend.ParkReply{}
	}
	k = stored
	i := k.parkedAt(r.Entry)
	if i < 0 && len(k.parked) >= r.Most {
		return k, backend.ParkReply{Outcome: backend.ParkFull, Count: len(k.parked), Oldest: k.oldestParked(e.now)}
	}
	k.unfold(e.now)
	if k.parked = slices.Clone(k.parked); i < 0 {
		entry := parkedEntry{since: e.now, text: r.Entry}
		i, _ = slices.BinarySearchFunc(k.parked, entry, byParking)
		k.parked = slices.Insert(k.parked, i, entry)
	}
	k.parked[i].woken = 0
	if keep := wholeMillis(r.Keep); (k.parkedExpires-e.now)/1000*1000 < keep {
		k.parkedExpires = e.now + keep
	}
	k.waker = e.locker
	k.keepWaker(e.now)
	return k, backend.ParkReply{
		Outcome: backend.Parked, Before: i, Count: len(k.parked), Age: age(k.parked[i].since, e.now), Oldest: k.oldestParked(e.now),
	}
}

// unpark removes entries, and marks the oldest of the others until the requested number is woken.
// For a repeat that number may be woken already. Then it returns no entry, although its first copy
// marked some.
func unpark(k key, r *backend.UnparkRequest, e env) (key, backend.UnparkReply) {
	k.expire(e.now)
	reply := backend.UnparkReply{Marked: e.now}
	k.parked = slices.DeleteFunc(slices.Clone(k.parked), func(p parkedEntry) bool {
		ours := p.woken <= r.Marked && p.woken > e.now-micros(backend.WokenTime)
		removed := slices.Contains(r.Remove, p.text) && (r.Marked == 0 || ours)
		if removed {
			reply.Removed++
			reply.Age = max(reply.Age, age(p.since, e.now))
		}
		return removed
	})
	if len(k.parked) == 0 {
		k.parked, k.parkedExpires, k.waker = nil, 0, ""
		if k.empty() {
			k.expires = 0
		}
		return k, reply
	}
	reply.Wake = k.wake(r, e.now)
	reply.Count, reply.Oldest = len(k.parked), k.oldestParked(e.now)
	return k, reply
}

// wake marks entries as woken and returns them. It changes k.parked.
func (k *key) wake(r *backend.UnparkRequest, now instant) (marked []string) {
	woken := 0
	for i := range k.parked {
		p := &k.parked[i]
		if p.woken > now || p.woken <= now-micros(r.FreshTime()) { // the clock was set back, or the mark is old
			p.woken = 0
		}
		if p.woken != 0 && strings.HasPrefix(p.text, r.Prefix) {
			woken++
		}
	}
	for i := range k.parked[:min(len(k.parked), maxLooked)] {
		if p := &k.parked[i]; woken < r.Woken && p.woken == 0 && strings.HasPrefix(p.text, r.Prefix) {
			p.woken = now
			marked = append(marked, p.text)
			woken++
		}
	}
	return marked
}

// callWaker notifies the Locker that parked an entry most recently. It returns the number of
// subscribers that receive the notification.
func callWaker(k key, of *backend.Key, e env) (key, int, []notice) {
	k.expire(e.now)
	if k.waker == "" {
		return k, 0, nil
	}
	return k, e.listeners(k.waker), []notice{wakeNotice(k, of)}
}

func wakeNotice(k key, of *backend.Key) notice {
	return notice{k.waker, backend.Notification{Event: backend.EventWake, Kind: of.Kind, Name: of.Name}}
}

// keepWaker extends the TTL of data that has a waker. A record still ends at its original time.
func (k *key) keepWaker(now instant) {
	if k.waker != "" {
		k.outlive(parkedTTL, now)
	}
}

// parkedAt returns the index of the entry with this text, or -1. The index is the number of older
// entries.
func (k *key) parkedAt(text string) int {
	return slices.IndexFunc(k.parked, func(p parkedEntry) bool { return p.text == text })
}

func (k *key) oldestParked(now instant) time.Duration {
	if len(k.parked) == 0 {
		return 0
	}
	return age(k.parked[0].since, now)
}

func age(since, now instant) time.Duration { return duration(max(now-since, 0)) }

func byParking(a, b parkedEntry) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.text, b.text))
}
