package redis_test

import (
	"maps"
	"testing"
	"time"
)

var keyQueue = []string{dead + dead, waker + next}

// passed returns the fields after the key was reserved for the first live waiter.
func passed(was fields, gone ...string) fields {
	return was.without("v").without(gone...).with(fields{"s": "r", "h": next, "o": waker, "x": rel(window), "d": span(window)})
}

// all returns a row with reply for each state, except for the states in some, whose rows it uses.
func all(c call, reply []any, some map[string]func(fields) row) map[string]func(fields) row {
	rows := map[string]func(fields) row{}
	for name := range states() {
		rows[name] = func(was fields) row {
			r := row{reply: reply}
			if make, ok := some[name]; ok {
				r = make(was)
			}
			r.call = c
			return r
		}
	}
	return rows
}

func each(make func(fields) row, names ...string) map[string]func(fields) row {
	rows := map[string]func(fields) row{}
	for _, name := range names {
		rows[name] = make
	}
	return rows
}

// In each state release.lua ends the hold of its id, and reserves the key for the next live waiter.
// With a cooldown the key is cooling, and the dead waiters leave the queue. Without a hold of the id nothing changes.
func TestScriptRelease(t *testing.T) {
	freed := func(abandoned bool) func(fields) row {
		return func(was fields) row {
			r := row{reply: []any{1}, again: []any{0}, ttl: keep, members: []string{}}
			if r.after = passed(was, "a", "m", "g"); abandoned {
				r.after = passed(was).with(fields{"a": 1})
			}
			r.after["f"] = 1234
			return r
		}
	}
	held := []string{"mine", "mine after abandoned", "mine tagged", "mine over", "mine revoked", "mine revoked, over"}
	onEach(t, func(b *bench) {
		table(b, keyQueue, all(release(me, 1234, 0, 0), []any{0}, each(freed(false), held...)))
	})
	t.Run("cooldown", func(t *testing.T) {
		cooling := func(was fields) row {
			return row{reply: []any{1}, again: []any{0}, ttl: keep, members: []string{waker + next}, after: was.without("h", "o", "v", "a", "m", "g").with(fields{
				"s": "c", "x": rel(5 * time.Second), "d": span(5 * time.Second), "f": 1234,
			})}
		}
		c := release(me, 1234, 0, 0)
		c = c.with("cooldown", (5 * time.Second).Microseconds())
		onEach(t, func(b *bench) { table(b, keyQueue, all(c, []any{0}, each(cooling, held...))) })
	})
	t.Run("abandon", func(t *testing.T) {
		onEach(t, func(b *bench) {
			table(b, keyQueue, all(release(me, 1234, 1, 0), []any{0}, each(freed(true), held...)))
		})
	})
}

// In each state leave.lua withdraws the grant or the turn of its id, and reserves the key for the
// next live waiter. The attempt of a grant is not counted.
func TestScriptLeave(t *testing.T) {
	left := func(gone ...string) func(fields) row {
		return func(was fields) row {
			r := row{reply: []any{1}, again: []any{0}, members: []string{}, after: passed(was, gone...)}
			if was["s"] == "h" {
				r.after["n"] = 0 // the grant never ran
			}
			if was["a"] != 1 {
				r.ttl = keep
			}
			return r
		}
	}
	rows := each(left("m", "g"), "mine", "mine tagged", "mine over", "mine revoked", "mine revoked, over")
	maps.Copy(rows, each(left(), "mine after abandoned", "my turn", "my turn over", "my turn, abandoned"))
	onEach(t, func(b *bench) { table(b, keyQueue, all(leave(me, mine, 0), []any{0}, rows)) })
}

// In each state complete.lua stores the record of the hold of its id, also of an expired or revoked
// one. A repeat succeeds and changes nothing.
func TestScriptComplete(t *testing.T) {
	done := func(was fields) row {
		return row{
			reply: []any{1}, ttl: keep, members: []string{},
			after: was.without("h", "o", "x", "d", "v", "a").with(fields{"s": "d", "e": me, "r": "result", "f": 1234}),
		}
	}
	rows := each(done, "mine", "mine after abandoned", "mine tagged", "mine over", "mine revoked", "mine revoked, over")
	rows["done"] = func(fields) row { return row{reply: []any{1}} }
	onEach(t, func(b *bench) { table(b, keyQueue, all(complete(me, "result", 1234, 0), []any{0}, rows)) })
}

// In each state renew.lua renews a valid hold of its id, and reports a revoked one. It stores the
// last hold after a hand-off.
func TestScriptRenew(t *testing.T) {
	kept := func(was fields) row {
		return row{reply: []any{1}, ttl: retention, after: was.with(fields{"x": rel(lease), "d": span(lease)})}
	}
	rows := each(kept, "mine", "mine after abandoned", "mine tagged")
	rows["mine revoked"] = func(fields) row { return row{reply: []any{2}} }
	onEach(t, func(b *bench) { table(b, keyQueue, all(renew(me), []any{0}, rows)) })
	t.Run("last hold", func(t *testing.T) { // the hold after a hand-off, sent with the renewal; without effect if the sender does not hold the key
		updated := func(was fields) row {
			r := kept(was)
			r.after = r.after.with(fields{"t": 4711, "m": "who N\nof the\n two"})
			return r
		}
		maps.Copy(rows, each(updated, "mine", "mine after abandoned", "mine tagged"))
		lastHold := "4711 who N\nof the\n two"
		onEach(t, func(b *bench) { table(b, keyQueue, all(renewFor(me, lease, lastHold), []any{0}, rows)) })
	})
	t.Run("unreadable last hold", func(t *testing.T) {
		maps.Copy(rows, each(kept, "mine", "mine after abandoned", "mine tagged"))
		onEach(t, func(b *bench) {
			for _, lastHold := range []string{" ", "4711", "-1 who", "1e3 who", "x 4711 who"} {
				table(b, keyQueue, all(renewFor(me, lease, lastHold), []any{0}, rows))
			}
		})
	})
}

// In each state revoke.lua marks a valid hold as revoked, and changes nothing else.
func TestScriptRevoke(t *testing.T) {
	revoked := func(was fields) row { return row{reply: []any{1}, after: was.with(fields{"v": 1})} }
	rows := each(revoked, "mine", "mine after abandoned", "mine tagged", "mine revoked",
		"other's", "other's tagged", "other's revoked", "remembered, other's")
	onEach(t, func(b *bench) {
		table(b, keyQueue, remembering(id("V"), all(revoke.with("id", id("V")), []any{0}, rows)))
	})
}

// In each state clear.lua removes the data of a key that is not held, and keeps a reservation.
func TestScriptClear(t *testing.T) {
	about := []string{"a", "m", "g", "n", "r", "e"}
	cleared := func(was fields) row {
		r := row{reply: []any{1}, ttl: keep, members: []string{}, after: passed(was, about...)}
		if was["s"] == "h" { // it expired, so each token of its block may have been used
			r.after["f"] = was["t"]
		}
		return r
	}
	held := func(fields) row { return row{reply: []any{0}} }
	turn := func(was fields) row { return row{reply: []any{1}, ttl: keep, after: was.without(about...)} }
	rows := each(held, "mine", "mine after abandoned", "mine tagged", "mine revoked",
		"other's", "other's tagged", "other's revoked", "remembered, other's")
	for _, more := range []map[string]func(fields) row{
		each(cleared, "free", "mine over", "mine revoked, over", "other's over", "other's over tagged", "other's revoked over",
			"done", "done by other", "abandoned", "remembered", "cooling", "cooling over"),
		each(turn, "my turn", "my turn over", "my turn, abandoned", "other's turn", "other's turn over", "other's turn, aband."),
	} {
		maps.Copy(rows, more)
	}
	onEach(t, func(b *bench) {
		table(b, keyQueue, remembering(id("V"), all(forget.with("id", id("V")), []any{1}, rows)))
	})
}

// In each state inspect.lua returns the data of a key, and the record only if it is requested.
func TestScriptInspect(t *testing.T) {
	look := func(c call, record bool) map[string]func(fields) row {
		rows := map[string]func(fields) row{}
		for name := range states() {
			rows[name] = func(was fields) row { return row{call: c, reply: seen(was, record)} }
		}
		return rows
	}
	for name, c := range map[string]struct {
		call
		record bool
	}{"without the record": {inspect, false}, "with it": {inspect.with("part", 1), true}} {
		t.Run(name, func(t *testing.T) { onEach(t, func(b *bench) { table(b, keyQueue, look(c.call, c.record)) }) })
	}
}

// seen returns the reply of inspect.lua for a key with two members in its queue.
func seen(was fields, record bool) []any {
	ago := func(field string) any {
		if at, ok := was[field].(rel); ok {
			return span(-at)
		}
		return 0
	}
	or := func(field string, otherwise any) any {
		if v, ok := was[field]; ok {
			return v
		}
		return otherwise
	}
	left, live, kept := any(0), 0, any(0)
	if x, ok := was["x"].(rel); ok && x > 0 {
		left, live = span(x), 1
	}
	if len(was) > 0 {
		kept = span(standing)
	}
	locker := any("")
	if was["s"] == "h" {
		locker = or("o", "")
	}
	reply := []any{or("s", ""), or("m", ""), ago("t"), left, or("t", 0), or("n", 0), 2, live, or("a", 0), or("v", 0), kept, locker}
	switch {
	case record && was["s"] == "d":
		reply = append(reply, "record")
	case was["s"] == "h":
		reply = append(reply, nil, 0, "", 0, was["d"])
	}
	return reply
}

// A repeated request has one place in the queue, and its end removes that place.
func TestScriptQueue(t *testing.T) {
	onEach(t, func(b *bench) {
		request := acquire(me, mine, "exclusive", "", 1)
		for _, state := range []string{"other's", "other's turn", "other's revoked"} {
			b.set(states()[state], waker+next)
			for range 2 {
				if reply := b.run(request); reply[0] != int64(0) || reply[4] != int64(2) {
					b.Errorf("%s: %v, want busy and two in the queue", state, reply)
				}
				b.like(states()[state])
				b.bound()
			}
			if q := b.queue(); len(q) != 2 || q[1] != mine+me {
				b.Errorf("%s: the queue is %q", state, q)
			}
			for range 2 {
				b.wantReply(leave(me, mine, 0), 0)
			}
			if q := b.queue(); len(q) != 1 || q[0] != waker+next {
				b.Errorf("%s: after the withdrawal the queue is %q", state, q)
			}
			b.set(states()[state])
			b.run(request) // first in the queue
			b.bound()
		}
		for _, state := range []string{"new", "free", "my turn", "other's over", "done"} { // granted, or there is nothing to wait for
			b.set(states()[state], waker+next, mine+me)
			b.run(request)
			if q := b.queue(); len(q) != 1 || q[0] != waker+next {
				b.Errorf("%s: the queue is %q", state, q)
			}
			b.bound()
		}
	})
}

// A renewal or a late duplicate of a request does not shorten a lease. A renewal also stores how
// long the lease can last.
func TestScriptExtend(t *testing.T) {
	onEach(t, func(b *bench) {
		b.set(states()["mine"])
		b.wantReply(renewFor(me, time.Hour, ""), 1)
		long := states()["mine"].with(fields{"x": rel(time.Hour), "d": span(time.Hour)})
		b.like(long)
		b.wantReply(renew(me), 1)
		b.wantReply(renewFor(me, 0, ""), 1) // a lease of 0 only checks the hold
		b.like(long)
		b.must(b.rdb.HSet(b.Context(), b.keys[0], "d", (2 * time.Hour).Microseconds()).Err())
		b.wantReply(renewFor(me, 0, ""), 1)
		b.like(long.with(fields{"d": span(2 * time.Hour)}))
		b.wantReply(renew(me), 1) // d before the end is the time of this renewal
		b.like(long)
		b.wantReply(acquire(me, mine, "exclusive", "", 0), 1, rel(-10*time.Second), 1, 0) // a late duplicate
		b.like(long)

		for _, c := range []call{acquire(me, mine, "exclusive", "", 0), renew(me)} { // a longer lease than before
			b.set(states()["mine"].with(fields{"x": rel(8 * time.Second), "d": span(10 * time.Second)}))
			b.run(c)
			b.like(states()["mine"].with(fields{"x": rel(lease), "d": span(lease)}))
		}
	})
}
