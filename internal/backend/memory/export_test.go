package memory

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Glob and Escape are those of List.
var (
	Glob   = glob
	Escape = escape

	ShareText = shareText
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

	Shares    map[string]int64 // members, and the ends of their leases
	SharesTTL int64            // in µs; 0: none

	Parked              map[string]int64 // entries, and the time when each was first parked
	Woken               map[string]int64 // entries, and the time when each was marked
	ParkedTTL, WokenTTL int64            // in µs; 0: none. Memory keeps a mark as long as its entry
}

// Look returns the stored data of a key.
func (s *Space) Look(stored string) Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.keys[stored]
	if e == nil {
		return Stored{Fields: map[string]string{}}
	}
	k, now := e.key, s.clock()
	k.expire(now)
	out := Stored{Plain: k.plain, Fields: map[string]string{}}
	set := func(name, text string) {
		if text != "" && text != "0" {
			out.Fields[name] = text
		}
	}
	num := func(name string, n int64) { set(name, strconv.FormatInt(n, 10)) }
	set("s", map[state]string{held: "h", reserved: "r", cooling: "c", done: "d", shared: "s"}[k.state])
	set("h", k.owner)
	set("o", k.locker)
	num("x", k.end)
	num("d", k.length)
	set("m", k.holder)
	num("t", k.token)
	num("f", k.used)
	num("n", k.attempts)
	set("v", flag(k.revoked))
	set("a", flag(k.abandoned))
	set("g", k.fingerprint)
	set("r", string(k.record))
	set("e", k.completedBy)
	set("l", strings.Join(k.ended, ""))
	set("p", k.waker)
	num("c", int64(k.weights()))
	num("u", int64(k.heldWeights()))
	if k.head != "" {
		set("w", k.head+" "+strconv.FormatInt(k.headSeen, 10))
	}
	out.Shares = map[string]int64{}
	for _, s := range k.shares {
		out.Shares[s.member()] = s.end
		field, _, _ := strings.Cut(s.member(), "/")
		set(field, s.locker+"\n"+strconv.FormatInt(s.since, 10)+"\n"+s.holder)
	}
	if k.sharesExpires > 0 {
		out.SharesTTL = k.sharesExpires - now
	}
	out.Parked, out.Woken = map[string]int64{}, map[string]int64{}
	for _, p := range k.parked {
		if out.Parked[p.text] = p.since; p.woken != 0 {
			out.Woken[p.text] = p.woken
		}
	}
	if k.parkedExpires > 0 {
		out.ParkedTTL = k.parkedExpires - now
	}
	for _, w := range k.queue {
		out.Queue = append(out.Queue, w.locker+shareText(w.request, w.share))
	}
	if k.expires > 0 {
		out.TTL = k.expires - now
	}
	if k.queueExpires > 0 {
		out.QueueTTL = k.queueExpires - now
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
		if k.expires > 0 {
			k.expires += d
		}
		if k.queueExpires > 0 {
			k.queueExpires += d
		}
		if k.parkedExpires > 0 {
			k.parkedExpires += d
		}
		if k.sharesExpires > 0 {
			k.sharesExpires += d
		}
		k.parked = slices.Clone(k.parked)
		for i := range k.parked {
			k.parked[i].woken = 0
		}
		s.put(e, k, s.clock())
	}
}

// Remove deletes a key, its queue and its parked entries.
func (s *Space) Remove(stored string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[stored]; e != nil {
		s.put(e, key{}, s.clock())
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
	data.expire(s.clock())
	for _, id := range ids {
		data.enterQueue(id, share, env{now: since, locker: locker})
	}
	data.queueExpires = s.clock() + minute
	s.put(e, data, s.clock())
}
