package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of parked entries. They have the form of those in rules.go. The
// entries are not part of the data of the key, and have their own TTL. The data only contains
// ParkingLocker: if it is set, there may be entries. So callers send no command for a key without
// entries.

const (
	maxLooked = 1000 // maximum number of entries, the oldest first, that one request examines to wake some
	parkedTTL = Span(backend.ParkedTTL / time.Microsecond)
)

// ParkedEntry is a parked entry: the text that names a task outside of its worker.
type ParkedEntry struct {
	Since Instant // of its first parking
	Text  string
	Woken Instant // when it was marked as woken; 0: it is not woken
}

// Park adds an entry to a key that another request has, or whose rate is used up. An entry that is parked again keeps its
// place, and is no longer woken.
func Park(k Key, r *backend.ParkRequest, e Env) (Key, backend.ParkReply) {
	k.Expire(e.Now)
	stored := k
	k.clampEnd(e.Now)
	if !k.Plain {
		stored = k
	}
	if !r.Free && !k.live(e.Now) {
		return stored, backend.ParkReply{}
	}
	k = stored
	i := k.parkedAt(r.Entry)
	if i < 0 && len(k.Parked) >= r.Most {
		return k, backend.ParkReply{Outcome: backend.ParkFull, Count: len(k.Parked), Oldest: k.oldestParked(e.Now)}
	}
	k.unfold(e.Now)
	if k.Parked = slices.Clone(k.Parked); i < 0 {
		entry := ParkedEntry{Since: e.Now, Text: r.Entry}
		i, _ = slices.BinarySearchFunc(k.Parked, entry, byParking)
		k.Parked = slices.Insert(k.Parked, i, entry)
	}
	k.Parked[i].Woken = 0
	if keep := wholeMillis(r.Keep); (k.ParkedExpires-e.Now)/1000*1000 < keep {
		k.ParkedExpires = e.Now + keep
	}
	k.ParkingLocker = e.Locker
	k.keepParked(e.Now)
	if r.Free { // no release follows that would keep it
		k.outlive(wholeMillis(r.Keep), e.Now)
	}
	return k, backend.ParkReply{
		Outcome: backend.Parked, Before: i, Count: len(k.Parked), Age: age(k.Parked[i].Since, e.Now), Oldest: k.oldestParked(e.Now),
	}
}

// Unpark removes entries, and marks the oldest of the others until the requested number is woken.
// For a repeat that number may be woken already. Then it returns no entry, although its first copy
// marked some.
func Unpark(k Key, r *backend.UnparkRequest, e Env) (Key, backend.UnparkReply) {
	k.Expire(e.Now)
	reply := backend.UnparkReply{Marked: e.Now}
	k.Parked = slices.DeleteFunc(slices.Clone(k.Parked), func(p ParkedEntry) bool {
		ours := p.Woken <= r.Marked && p.Woken > e.Now-micros(backend.WokenTime)
		removed := slices.Contains(r.Remove, p.Text) && (r.Marked == 0 || ours)
		if removed {
			reply.Removed++
			reply.Age = max(reply.Age, age(p.Since, e.Now))
		}
		return removed
	})
	if len(k.Parked) == 0 {
		k.Parked, k.ParkedExpires, k.ParkingLocker = nil, 0, ""
		if k.Empty() {
			k.Expires = 0
		}
		return k, reply
	}
	reply.Wake = k.wake(r, e.Now)
	reply.Count, reply.Oldest = len(k.Parked), k.oldestParked(e.Now)
	return k, reply
}

// wake marks entries as woken and returns them. It changes k.Parked.
func (k *Key) wake(r *backend.UnparkRequest, now Instant) (marked []string) {
	woken := 0
	counts := func(entry string) bool {
		return strings.HasPrefix(entry, r.Prefix) && !slices.ContainsFunc(r.Skip, func(s string) bool { return strings.HasPrefix(entry, s) })
	}
	for i := range k.Parked {
		p := &k.Parked[i]
		if p.Woken > now || p.Woken <= now-micros(r.FreshTime()) { // the clock was set back, or the mark is old
			p.Woken = 0
		}
		if p.Woken != 0 && counts(p.Text) {
			woken++
		}
	}
	for i := range k.Parked[:min(len(k.Parked), maxLooked)] {
		if p := &k.Parked[i]; woken < r.Woken && p.Woken == 0 && counts(p.Text) {
			p.Woken = now
			marked = append(marked, p.Text)
			woken++
		}
	}
	return marked
}

// CallParkingLocker notifies the Locker that parked an entry most recently. It returns the number of
// subscribers that receive the notification.
func CallParkingLocker(k Key, of *backend.Key, e Env) (Key, int, []Notice) {
	k.Expire(e.Now)
	if k.ParkingLocker == "" {
		return k, 0, nil
	}
	return k, e.Listeners(k.ParkingLocker), []Notice{wakeNotice(k, of)}
}

func wakeNotice(k Key, of *backend.Key) Notice {
	return Notice{k.ParkingLocker, backend.Notification{Event: backend.EventWake, Kind: of.Kind, Name: of.Name}}
}

// keepParked extends the TTL of data that has a parking Locker. A record still ends at its original
// time.
func (k *Key) keepParked(now Instant) {
	if k.ParkingLocker != "" {
		k.outlive(parkedTTL, now)
	}
}

// parkedAt returns the index of the entry with this text, or -1. The index is the number of older
// entries.
func (k *Key) parkedAt(text string) int {
	return slices.IndexFunc(k.Parked, func(p ParkedEntry) bool { return p.Text == text })
}

func (k *Key) oldestParked(now Instant) time.Duration {
	if len(k.Parked) == 0 {
		return 0
	}
	return age(k.Parked[0].Since, now)
}

func age(since, now Instant) time.Duration { return duration(max(now-since, 0)) }

func byParking(a, b ParkedEntry) int {
	return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Text, b.Text))
}
