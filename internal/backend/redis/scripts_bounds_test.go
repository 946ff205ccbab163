package redis_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

const idMemory = time.Minute // the time for which an ended id is remembered and a queue is kept

// pttl returns the TTL of a key: 0 is the hash, 1 the queue.
func (b *oneKey) pttl(key int) time.Duration {
	b.Helper()
	ttl, err := b.rdb.PTTL(b.Context(), b.keys[key]).Result()
	b.must(err)
	return ttl
}

// shortEnds returns calls that end the hold or the request me, and keep the hash for only a second.
func shortEnds(remember int) map[string]call {
	const second = int64(1000)
	cooling := release(me, 1, 0, remember).with("retention_ms", second).with("cooldown", second*1000)
	return map[string]call{
		"release": release(me, 1, 0, remember).with("retention_ms", second), "cooldown": cooling, "abandon": release(me, 1, 1, remember).with("retention_ms", second),
		"leave": leave(me, mine, remember).with("keep_ms", second), "complete": complete(me, "r", 1, remember).with("keep_ms", second),
		"rotate": rotate(me, again, remember, 0).with("keep_ms", second),
	}
}

// The end of a hold sets a short TTL. A hash that remembers an ended id is still kept for a minute,
// also if an earlier end remembered the id. Otherwise a late duplicate of the acquire would be
// granted to a request that has ended.
// Shows: L13
func TestScriptRemembersLongEnough(t *testing.T) {
	onEach(t, func(b *oneKey) {
		remembers := func(what string, id string) {
			b.Helper()
			if ttl := b.pttl(0); ttl < idMemory-tolerance {
				b.Errorf("%s: an ended id is remembered for %v, want %v", what, ttl, idMemory)
			}
			if l := b.hash()["l"]; !strings.Contains(l, id) {
				b.Errorf("%s: the hash remembers %q, want %q", what, l, id)
			}
		}
		for name, end := range shortEnds(1) {
			for _, state := range []string{"mine", "mine after abandoned", "mine over", "my turn", "other's over", "free", "new"} {
				b.set(states()[state])
				b.must(b.rdb.PExpire(b.Context(), b.keys[0], time.Second).Err())
				b.run(end)
				remembers(name+" of "+state, me)
				b.run(end)
				remembers(name+" of "+state+", repeated", me)
			}
		}
		for name, end := range shortEnds(0) { // the id of an earlier request, and an end that is sent once
			b.set(states()["mine"].with(fields{"l": id("X")}))
			b.run(end)
			remembers(name+" after another", id("X"))
		}
		// The hash exists, but its TTL ends soon.
		b.set(states()["free"])
		b.must(b.rdb.PExpire(b.Context(), b.keys[0], 100*time.Millisecond).Err())
		b.run(leave(me, mine, 1))
		remembers("leave of a free key", me)
	})
}

// The hash is kept longer than the queue, also if a request arrives at the end of a reservation or
// of MinHold.
// Shows: I8
func TestScriptHashOutlivesQueue(t *testing.T) {
	onEach(t, func(b *oneKey) {
		ends := shortEnds(0)
		ends["clear"] = forget.with("keep_ms", int64(1000))
		delete(ends, "complete") // it leaves no queue
		for name, end := range ends {
			for _, stands := range [][]string{{listener + next}, {dead + dead}, {dead + dead, listener + next}, strangers(150)} {
				state := states()["mine"]
				if name == "clear" {
					state = states()["abandoned"]
				}
				b.set(state, stands...)
				b.run(end)
				if name == "rotate" && b.hash()["s"] == "h" { // the next request was granted, so the hash is kept for its lease
					continue
				}
				left := b.pttl(0)
				reply := b.run(acquire(mismatch, id("P"), "exclusive", "", 1)) // refreshes the queue
				if reply[0] == int64(1) {
					if n := len(b.queue()); n > 0 && left < idMemory-tolerance {
						b.Errorf("%s with %d in the queue: %d stay in the queue of a free key that is kept for %v", name, len(stands), n, left)
					}
					continue
				}
				x, _ := b.rdb.HGet(b.Context(), b.keys[0], "x").Int64()
				last := time.Duration(x-b.now())*time.Microsecond + idMemory // the end of the queue, if the last request arrives at x
				if ttl := b.pttl(0); ttl < last-tolerance/10 {
					b.Errorf("%s with %d in the queue: the hash is kept for %v, the queue perhaps for %v", name, len(stands), ttl, last)
				}
			}
		}
	})
}

// strangers returns a queue of n dead members.
func strangers(n int) []string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf("%026d%026d", i, i)
	}
	return members
}

// A queue has many dead members. A script removes at most 100 of them, and the next script the next
// 100. Meanwhile the key is free.
// Shows: W6
func TestScriptDeadQueue(t *testing.T) {
	onEach(t, func(b *oneKey) {
		ends := map[string]call{
			"release": release(me, 1, 0, 0), "abandon": release(me, 1, 1, 0), "leave": leave(me, mine, 0), "rotate": rotate(me, again, 0, 0), "clear": forget,
		}
		for name, end := range ends {
			from := states()["mine"]
			if name == "clear" {
				from = states()["done"]
			}
			b.set(from, append(strangers(250), listener+next)...)
			for _, want := range []int{151, 51, 0} {
				b.run(end)
				if n := len(b.queue()); n != want {
					b.Errorf("%s leaves %d in the queue, want %d", name, n, want)
				}
				s := b.hash()["s"]
				switch {
				case want == 0 && (s != "r" || b.hash()["h"] != next):
					b.Errorf("%s: the key is %q of %q, want it reserved for the live waiter", name, s, b.hash()["h"])
				case want > 0 && s != "" && (name != "rotate" || s != "h"):
					b.Errorf("%s: the key is %q after 100 members were removed, want it free", name, s)
				}
				b.bound()
				if want > 0 { // hold the key again
					b.must(b.rdb.HSet(b.Context(), b.keys[0], "s", from["s"], "h", me, "o", mine, "x", b.now()+lease.Microseconds(), "d", lease.Microseconds()).Err())
				}
			}
		}
		b.set(states()["mine"], append([]string{listener + next}, strangers(3000)...)...)
		for len(b.heard) > 0 {
			<-b.heard
		}
		b.wantReply(complete(me, "r", 1, 0), 1)
		if n := len(b.queue()); n != 0 {
			b.Errorf("a record leaves %d in the queue", n)
		}
		if m := <-b.heard; m.Payload != "w"+next {
			b.Errorf("the first waiter is notified by %q", m.Payload)
		}
	})
}

// hostile has invalid values of a number field, which no script writes.
var hostile = []string{"", "abc", "nan", "-nan", "-inf", "-1", "-7", "-1e300", "-9007199254740993", "1 2", "0x", "\x00", "\xff\xfe", "{}"}

// tooLarge has numbers that are too large for exact arithmetic in Lua.
var tooLarge = []string{"inf", "1e300", "9007199254740992", "9000000000000001", "18446744073709551616", strings.Repeat("9", 400)}

// A field cannot be read. The script returns an error that names it, and writes nothing, also no
// TTL.
// Shows: X2
func TestScriptUnreadable(t *testing.T) {
	all := []string{"other's", "free", "abandoned", "done", "my turn", "cooling"}
	names := testlevel.Pick(t, all[:2], all, all)
	onEach(t, func(b *oneKey) {
		for field := range strings.FieldsSeq("x d t f n") {
			values := hostile
			if field != "x" && field != "d" {
				values = append(slices.Clone(hostile), tooLarge...)
			}
			for _, value := range values {
				for _, state := range names {
					b.unreadable(state, field, value)
				}
			}
		}
	})
}

func (b *oneKey) unreadable(state, field, value string) {
	b.Helper()
	b.set(states()[state].with(fields{field: value}), dead+dead)
	b.must(b.rdb.PExpire(b.Context(), b.keys[0], 30*time.Second).Err())
	was := b.hash()
	_, ends := was["s"]
	ends = ends && was["s"] != "d" // otherwise x and d have no effect
	used := field != "x" && field != "d" || ends
	same := func(what string) {
		b.Helper()
		if h := b.hash(); !maps.Equal(h, was) {
			b.Errorf("%s: %s %q: %s changes the hash to %v from %v", state, field, value, what, h, was)
		}
		if ttl := b.pttl(0); ttl > 30*time.Second {
			b.Errorf("%s: %s %q: %s extends the hash to %v", state, field, value, what, ttl)
		}
	}
	reads := map[string]call{"inspect": inspect}
	if state != "done" || field == "n" {
		reads["acquire"], reads["acquire most"] = acquire(me, mine, "least", "", 1), acquire(me, mine, "most", "tag", 0)
	}
	if used {
		for name, c := range reads {
			if reply, err := b.try(c); err == nil || !strings.Contains(err.Error(), "BADFIELD "+field) {
				b.Errorf("%s: %s %q: %s returns %v, %v, want an error that names the field", state, field, value, name, reply, err)
			}
			same(name)
		}
		b.run(leave(id("Y"), mine, 1)) // the withdrawal of a request that got the error
		same("leave")
	}
	want := int64(1)
	if state == "other's" && field != "x" && field != "d" {
		want = 0 // the key is held
	}
	if reply, err := b.try(forget); err != nil || reply[0] != want {
		b.Errorf("%s: %s %q: clear returns %v, %v, want %d", state, field, value, reply, err, want)
	}
	if want == 0 {
		return
	}
	if reply, err := b.try(inspect); err != nil || reply[0] != "" && reply[0] != "r" {
		b.Errorf("%s: %s %q: after clear inspect returns %v, %v", state, field, value, reply, err)
	}
	if reply, err := b.try(acquire(me, mine, "most", "", 0)); err != nil || reply[0] != int64(1) || reply[3] != int64(0) {
		b.Errorf("%s: %s %q: after clear acquire returns %v, %v", state, field, value, reply, err)
	}
}

// The stored end of a state is absurd. The scripts treat it as at most a day in the future.
// Shows: X1
func TestScriptAbsurdEnd(t *testing.T) {
	onEach(t, func(b *oneKey) {
		const most = 24 * time.Hour
		for _, state := range []string{"other's", "other's turn", "cooling"} {
			for _, x := range []string{fmt.Sprint(b.now() + 9.3e15), "1e300", "inf", strings.Repeat("9", 400), "9223372036854775807"} {
				for _, d := range []string{"inf", "1e300", "9.4e15", strings.Repeat("9", 400)} {
					b.set(states()[state].with(fields{"x": x, "d": d}))
					for range 2 {
						reply, err := b.try(acquire(me, mine, "exclusive", "", 0))
						if err != nil && strings.Contains(err.Error(), "BADFIELD") {
							continue // in memory inf is not read as a number
						}
						b.must(err)
						left, _ := reply[1].(int64)
						if reply[0] != int64(0) || !match(left, span(most), 0) {
							b.Errorf("%s with x %s and d %s: %v, want busy for %v", state, x, d, reply, most)
						}
					}
				}
			}
			// The longest state that is possible.
			b.set(states()[state].with(fields{"x": rel(most), "d": span(most)}))
			if reply := b.run(acquire(me, mine, "exclusive", "", 0)); !match(reply[1], span(most), 0) {
				b.Errorf("%s for %v: %v", state, most, reply)
			}
		}
	})
}

// The reply of Clear is lost. A repeat returns the same reply, and clears nothing that happened
// meanwhile.
func TestScriptClearRepeat(t *testing.T) {
	onEach(t, func(b *oneKey) {
		once := forget.with("id", id("C"))
		for _, token := range []any{"", int64(4711)} {
			b.set(states()["done"].with(fields{"t": 4711, "f": 4711}))
			c := once.with("seen", token)
			if token != "" {
				c = c.with("seen_done", 1)
			}
			b.wantReply(c, 1)
			b.wantReply(c, 1)
			b.token(mismatch)
			b.wantReply(c, 1)
			b.run(complete(mismatch, "of another run", 1, 0))
			was := b.hash()
			b.wantReply(c, 1)
			if h := b.hash(); !maps.Equal(h, was) {
				b.Errorf("a repeat of clear changes %v to %v", was, h)
			}
		}
	})
}
