package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// Control replaces the clock and the ids of a Space.
func (s *Space) Control(now func() int64, newID func() string) {
	s.clock, s.newID = now, newID
	s.until = func(t time.Time) time.Duration { return time.Duration(t.UnixMicro()-now()) * time.Microsecond }
}

// Subscribe is like Listen without a goroutine. take returns the notifications since its last call.
func (b *Backend) Subscribe() (take func() []backend.Notification, end func()) {
	l := b.subscribe()
	return func() []backend.Notification { return b.take(l) }, func() { b.unsubscribe(l) }
}

// Len returns the number of keys.
func (s *Space) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// Check fails the test if the counted bytes or the heap of keys are wrong.
func (s *Space) Check(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := int64(0)
	for _, e := range s.keys {
		if sum += size(&e.of, &e.key); s.due[e.index] != e {
			tb.Errorf("key %q is not in its place in the heap", e.of.Name)
		}
	}
	if sum != s.bytes || len(s.keys) != len(s.due) {
		tb.Errorf("%d bytes counted, want %d; %d keys, %d in the heap", s.bytes, sum, len(s.keys), len(s.due))
	}
}

// Stored is the data of a key in the form in which Redis stores it.
type Stored struct {
	Plain         bool // the key is one string
	Fields        map[string]string
	Queue         []string
	TTL, QueueTTL int64 // in µs; 0: none

	Waits    map[string]string // what the lockers have said of their calls, as in Redis
	WaitsTTL map[string]int64  // in µs

	Flow    map[string]string // fields of the hash of its rate
	FlowTTL int64             // in µs; 0: none

	Shares    map[string]int64 // members, and the ends of their leases
	SharesTTL int64            // in µs; 0: none

	Parked              map[string]int64 // entries, and the time when each was first parked
	Woken               map[string]int64 // entries, and the time when each was marked
	ParkedTTL, WokenTTL int64            // in µs; 0: none. Memory keeps a mark as long as its entry

	Triggers    map[string]int64 // entries, = and <, and their scores
	TriggersTTL int64            // in µs; 0: none
}

// Look returns the stored data of a key.
func (s *Space) Look(stored string) Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.keys[stored]
	if e == nil {
		return Stored{Fields: map[string]string{}, Flow: map[string]string{}}
	}
	k, now := e.key, s.clock()
	k.Expire(now)
	out := Stored{Plain: k.Plain, Fields: map[string]string{}, Flow: map[string]string{}}
	set := func(name, text string) {
		if text != "" && text != "0" {
			out.Fields[name] = text
		}
	}
	num := func(name string, n int64) { set(name, strconv.FormatInt(n, 10)) }
	set("s", map[rules.State]string{rules.Held: "h", rules.Reserved: "r", rules.Cooling: "c", rules.Done: "d", rules.Shared: "s"}[k.State])
	set("h", k.Owner)
	set("o", k.Locker)
	num("x", k.End)
	num("d", k.Length)
	set("m", k.Holder)
	num("t", k.Token)
	num("f", k.Used)
	num("n", k.Attempts)
	if set("v", flag(k.Revoked)); k.Replaced {
		set("v", "2")
	}
	set("a", flag(k.Abandoned))
	set("g", k.Fingerprint)
	set("r", string(k.Record))
	set("e", k.CompletedBy)
	set("l", strings.Join(k.Ended, ""))
	set("p", k.ParkingLocker)
	if k.Paused != 0 {
		set("y", strconv.FormatInt(k.Paused, 10)+" "+strconv.FormatInt(k.PauseLength, 10)+" "+k.PauseReason)
	}
	num("c", int64(k.Weights()))
	num("u", int64(k.HeldWeights()))
	if k.Head != "" {
		set("w", k.Head+" "+strconv.FormatInt(k.HeadSeen, 10))
	}
	out.Shares = map[string]int64{}
	for _, s := range k.Shares {
		out.Shares[s.Member()] = s.End
		field, _, _ := strings.Cut(s.Member(), "/")
		set(field, s.Locker+"\n"+strconv.FormatInt(s.Since, 10)+"\n"+s.Holder)
	}
	if k.SharesExpires > 0 {
		out.SharesTTL = k.SharesExpires - now
	}
	out.Parked, out.Woken = map[string]int64{}, map[string]int64{}
	for _, p := range k.Parked {
		if out.Parked[p.Text] = p.Since; p.Woken != 0 {
			out.Woken[p.Text] = p.Woken
		}
	}
	if k.ParkedExpires > 0 {
		out.ParkedTTL = k.ParkedExpires - now
	}
	out.Triggers = map[string]int64{}
	for _, t := range k.Triggers {
		out.Triggers[t.Entry] = t.Score
	}
	for member, score := range map[string]int64{"=": k.Succeeded, "<": k.Uncovered} {
		if score != 0 {
			out.Triggers[member] = score
		}
	}
	if k.TriggersExpires > 0 {
		out.TriggersTTL = k.TriggersExpires - now
	}
	for _, w := range k.Queue {
		out.Queue = append(out.Queue, w.Locker+w.Share.Text(w.Request))
	}
	out.Waits, out.WaitsTTL = map[string]string{}, map[string]int64{}
	for _, w := range k.Waits {
		out.Waits[w.Locker], out.WaitsTTL[w.Locker] = fmt.Sprintf("%d %d", w.Calls, w.Since), w.Expires-now
	}
	for i, b := range k.Flow.Buckets {
		if b.Full > 0 {
			out.Flow["by"[i:i+1]] = fmt.Sprintf("%d %d", b.Full, b.Ahead)
		}
	}
	if k.Flow.Head != "" {
		out.Flow["w"] = k.Flow.Head + " " + strconv.FormatInt(k.Flow.HeadSeen, 10)
	}
	if r := k.Flow.Restriction; r.For > 0 {
		out.Flow["z"] = fmt.Sprintf("%d %d %s", r.End, r.For.Microseconds(), wire.RestrictionText(r.Restriction))
	}
	if k.Flow.Expires > 0 {
		out.FlowTTL = k.Flow.Expires - now
	}
	if k.Expires > 0 {
		out.TTL = k.Expires - now
	}
	if k.QueueExpires > 0 {
		out.QueueTTL = k.QueueExpires - now
	}
	return out
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Shift moves all TTLs by d, like those of a server that do not follow a clock that is set back. It
// removes the marks of woken entries: in Redis the TTL of the marks ends, and here the marks are
// compared with the clock.
func (s *Space) Shift(d int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.keys {
		k := e.key
		if k.Expires > 0 {
			k.Expires += d
		}
		if k.Flow.Expires > 0 {
			k.Flow.Expires += d
		}
		if k.QueueExpires > 0 {
			k.QueueExpires += d
		}
		if k.ParkedExpires > 0 {
			k.ParkedExpires += d
		}
		if k.SharesExpires > 0 {
			k.SharesExpires += d
		}
		if k.TriggersExpires > 0 {
			k.TriggersExpires += d
		}
		k.Waits = slices.Clone(k.Waits)
		for i := range k.Waits {
			k.Waits[i].Expires += d
		}
		k.Parked = slices.Clone(k.Parked)
		for i := range k.Parked {
			k.Parked[i].Woken = 0
		}
		s.put(e, k, s.clock())
	}
}

// Remove deletes a key, its queue, its parked entries and its triggers.
func (s *Space) Remove(stored string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[stored]; e != nil {
		s.put(e, rules.Key{}, s.clock())
	}
}

// Enqueue adds waiters that arrived at since and request a share.
func (s *Space) Enqueue(k backend.Key, locker string, since int64, share backend.Share, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.keys[k.Stored[0]]
	if e == nil {
		e = &entry{of: k}
	}
	data := e.key
	data.Expire(s.clock())
	data.Queue = slices.Clone(data.Queue)
	for _, id := range ids {
		data.Queue = append(data.Queue, rules.Waiter{Since: since, Locker: locker, Request: id, Share: share})
	}
	slices.SortFunc(data.Queue, func(a, b rules.Waiter) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Locker, b.Locker), cmp.Compare(a.Request, b.Request))
	})
	data.QueueExpires = s.clock() + time.Minute.Microseconds()
	s.put(e, data, s.clock())
}
