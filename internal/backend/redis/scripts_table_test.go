package redis_test

import (
	"slices"
	"testing"
	"time"
)

// states returns the states of a key. A live hold began 10 s ago and has 20 s left. An expired one
// expired 10 s ago.
func states() map[string]fields {
	held := func(request, locker string) fields {
		return fields{
			"s": "h", "h": request, "o": locker, "x": rel(20 * time.Second), "d": span(lease), "m": "who " + request, "t": rel(-10 * time.Second),
			"f": rel(-time.Minute), "n": 1,
		}
	}
	free := fields{"t": rel(-time.Minute), "f": rel(-time.Minute), "n": 1}
	reserved := func(request, locker string) fields {
		return free.with(fields{"s": "r", "h": request, "o": locker, "x": rel(30 * time.Second), "d": span(window)})
	}
	done := func(hold string) fields {
		return free.with(fields{"s": "d", "e": hold, "r": "record", "m": "who " + hold, "g": "tag"})
	}
	over := fields{"x": rel(-10 * time.Second), "t": rel(-40 * time.Second)}
	abandoned := fields{"a": 1, "m": "who Z", "g": "tag"}
	return map[string]fields{
		"new":                  {},
		"free":                 free,
		"mine":                 held(me, mine),
		"mine after abandoned": held(me, mine).with(fields{"a": 1}),
		"mine tagged":          held(me, mine).with(fields{"g": "tag"}),
		"mine over":            held(me, mine).with(over),
		"mine revoked":         held(me, mine).with(fields{"v": 1}),
		"mine revoked, over":   held(me, mine).with(over).with(fields{"v": 1}),
		"other's":              held(mismatch, waker),
		"other's tagged":       held(mismatch, waker).with(fields{"g": "tag"}),
		"other's over":         held(mismatch, waker).with(over),
		"other's over tagged":  held(mismatch, waker).with(over).with(fields{"g": "tag"}),
		"other's revoked":      held(mismatch, waker).with(fields{"v": 1}),
		"other's revoked over": held(mismatch, waker).with(over).with(fields{"v": 1}),
		"my turn":              reserved(me, mine),
		"my turn over":         reserved(me, mine).with(fields{"x": rel(-time.Minute)}),
		"my turn, abandoned":   reserved(me, mine).with(abandoned),
		"other's turn":         reserved(mismatch, waker),
		"other's turn over":    reserved(mismatch, waker).with(fields{"x": rel(-time.Minute)}),
		"other's turn, aband.": reserved(mismatch, waker).with(abandoned),
		"cooling":              free.with(fields{"s": "c", "x": rel(30 * time.Second), "d": span(time.Minute)}),
		"cooling over":         free.with(fields{"s": "c", "x": rel(-time.Second), "d": span(time.Minute)}),
		"done":                 done(me),
		"done by other":        done(mismatch),
		"abandoned":            free.with(abandoned),
		"remembered":           free.with(fields{"l": id("X") + me}),
		"remembered, other's":  held(mismatch, waker).with(fields{"l": me + id("X")}),
	}
}

type row struct {
	call    call
	reply   []any
	after   fields        // fields of the hash afterwards; nil: as before
	again   []any         // reply of the second run; nil: the same as the first
	ttl     time.Duration // TTL of the hash afterwards; 0: as before
	members []string      // members of the queue afterwards; nil: as before
}

// table runs each row twice in its state. The second run must change nothing.
func table(b *bench, members []string, rows map[string]func(was fields) row) {
	for name, was := range states() {
		make, ok := rows[name]
		if !ok {
			continue
		}
		r := make(was)
		if r.after == nil {
			r.after = was
		}
		if r.again == nil {
			r.again = r.reply
		}
		if r.members == nil {
			r.members = members
		}
		b.T.Run(name, func(t *testing.T) {
			b := &bench{T: t, rdb: b.rdb}
			b.use(t.Name())
			r.check(b, was, members)
			if len(was) > 0 {
				r.parked().check(b, was.with(fields{"p": waker}), members)
			}
		})
	}
	for name := range rows {
		if _, ok := states()[name]; !ok {
			b.Errorf("there is no state %q", name)
		}
	}
}

// check runs the row twice, and checks the reply, the hash, the queue and the TTLs each time.
func (r row) check(b *bench, was fields, members []string) {
	b.Helper()
	b.set(was, members...)
	for _, reply := range [][]any{r.reply, r.again} {
		b.wantReply(r.call, reply...)
		b.like(r.after)
		if q := b.queue(); !slices.Equal(q, r.members) {
			b.Errorf("the queue is %q, want %q", q, r.members)
		}
		b.bound()
		if r.ttl != 0 {
			b.ttl(r.ttl)
		} else if len(was) > 0 {
			b.ttl(standing)
		}
	}
}

// parked returns the row for a key that may have parked entries: only replies differ. The rows keep
// no data for less than backend.ParkedTTL.
func (r row) parked() row {
	r.after = r.after.with(fields{"p": waker})
	tell := func(reply []any) []any {
		first := reply
		if r.call.Name == "rotate" {
			first = reply[1:]
		}
		switch tells := first[0] == 1 || first[0] == 2; {
		case tells && (r.call.Name == "acquire" || r.call.Name == "rotate"),
			tells && r.call.Name == "release" && r.after["s"] == nil, tells && r.call.Name == "complete":
			return append(slices.Clone(reply), 1)
		}
		return reply
	}
	r.reply, r.again = tell(r.reply), tell(r.again)
	return r
}

// In each state and mode, with and without a fingerprint, acquire.lua grants the key, or returns
// the reason: busy, a record, a mismatch, an abandoned run, or the end of its request.
func TestScriptAcquire(t *testing.T) {
	const most, least = "most", "least"
	is := func(reply ...any) func(fields) row { return func(fields) row { return row{reply: reply} } }
	granted := func(n, abandoned int, tag string) func(fields) row {
		return func(was fields) row {
			r := row{reply: []any{1, rel(0), n, abandoned}, ttl: retention, after: was.without("v", "g").with(fields{
				"s": "h", "h": me, "o": mine, "x": rel(lease), "d": span(lease), "m": "who " + me, "t": rel(0), "n": n,
			})}
			if abandoned == 1 {
				r.after["a"] = 1
			}
			if tag != "" {
				r.after["g"] = tag
			}
			return r
		}
	}
	same := func(abandoned int) func(fields) row {
		return func(was fields) row {
			return row{reply: []any{1, rel(-10 * time.Second), 1, abandoned}, after: was.with(fields{"x": rel(lease)})}
		}
	}
	busy := func(left, held time.Duration, who string) func(fields) row {
		return func(was fields) row {
			if was["s"] != "h" { // the hold before a reservation has ended
				return row{reply: []any{0, span(left), span(held), who, 0, ""}}
			}
			tag, _ := was["g"].(string)
			return row{reply: []any{0, span(left), span(held), who, 0, tag, was["o"]}}
		}
	}
	held, turn := busy(20*time.Second, 10*time.Second, "who "+mismatch), busy(30*time.Second, 0, "")
	common := map[string]func(fields) row{
		"new": granted(1, 0, ""), "free": granted(2, 0, ""), "mine": same(0), "mine after abandoned": same(1), "mine tagged": same(0),
		"mine over": is(5), "mine revoked": is(5), "mine revoked, over": is(5), "other's": held, "other's revoked": held,
		"my turn": granted(2, 0, ""), "my turn over": granted(2, 0, ""), "other's turn": turn, "other's turn, aband.": turn, "other's turn over": granted(2, 0, ""),
		"cooling": is(0, span(30*time.Second), span(0), "", 0, "", "", "", 0, 2), "cooling over": granted(2, 0, ""),
		"done": is(2, "record", 1, "tag"), "done by other": is(2, "record", 1, "tag"), "remembered": is(5), "remembered, other's": is(5),
		"other's tagged": held,
	}
	refused := func(who string, age time.Duration) func(fields) row { // a refusal renews the mark
		return func(fields) row { return row{reply: []any{4, who, span(age), 1}, ttl: retention} }
	}
	another := func(fields) row { return row{reply: []any{3, 0}, ttl: retention} }
	over := granted(2, 1, "")
	for name, c := range map[string]struct {
		mode, tag string
		rows      map[string]func(fields) row
	}{
		"exclusive": {mode: "exclusive", rows: map[string]func(fields) row{
			"other's over": over, "other's revoked over": over, "abandoned": over, "my turn, abandoned": over, "other's over tagged": over,
		}},
		"least": {mode: least, rows: map[string]func(fields) row{
			"other's over": over, "other's revoked over": over, "abandoned": over, "my turn, abandoned": over, "other's over tagged": over,
		}},
		"most": {mode: most, rows: map[string]func(fields) row{
			"other's over": refused("who "+mismatch, 40*time.Second), "other's revoked over": refused("who "+mismatch, 40*time.Second),
			"abandoned": refused("who Z", time.Minute), "my turn, abandoned": refused("who Z", time.Minute),
		}},
		"least, same tag": {mode: least, tag: "tag", rows: map[string]func(fields) row{
			"new": granted(1, 0, "tag"), "free": granted(2, 0, "tag"), "my turn": granted(2, 0, "tag"), "my turn over": granted(2, 0, "tag"),
			"other's turn over": granted(2, 0, "tag"), "cooling over": granted(2, 0, "tag"), "abandoned": granted(2, 1, "tag"), "other's over tagged": granted(2, 1, "tag"),
			"my turn, abandoned": granted(2, 1, "tag"), "other's over": granted(2, 1, "tag"),
		}},
		"least, another tag": {mode: least, tag: "another", rows: map[string]func(fields) row{
			"new": granted(1, 0, "another"), "free": granted(2, 0, "another"), "my turn": granted(2, 0, "another"),
			"my turn over": granted(2, 0, "another"), "other's turn over": granted(2, 0, "another"), "cooling over": granted(2, 0, "another"),
			"other's tagged": is(3, 0), "other's over tagged": is(3, 0), "abandoned": is(3, 0), "my turn, abandoned": is(3, 0),
			"done": is(3, 1), "done by other": is(3, 1),
		}},
		"most, another tag": {mode: most, tag: "another", rows: map[string]func(fields) row{
			"new": granted(1, 0, "another"), "free": granted(2, 0, "another"), "my turn": granted(2, 0, "another"),
			"my turn over": granted(2, 0, "another"), "other's turn over": granted(2, 0, "another"), "cooling over": granted(2, 0, "another"),
			"other's tagged": is(3, 0), "other's over tagged": another, "abandoned": another, "my turn, abandoned": another, "done": is(3, 1), "done by other": is(3, 1),
		}},
	} {
		rows := map[string]func(fields) row{}
		for _, from := range []map[string]func(fields) row{common, c.rows} {
			for state, make := range from {
				rows[state] = func(was fields) row {
					r := make(was)
					r.call = acquire(me, mine, c.mode, c.tag, 0)
					if c.mode == "exclusive" && r.reply[0] == 1 { // exclusive keys do not count runs
						r.reply[2] = 1
						if n, ok := was["n"]; ok {
							r.after["n"] = n
						} else {
							delete(r.after, "n")
						}
					}
					if r.reply[0] == 1 && r.ttl != 0 { // the grant is at the current time, so a repeat has the same reply
						r.again = []any{1, rel(0), r.reply[2], r.reply[3]}
					}
					return r
				}
			}
		}
		t.Run(name, func(t *testing.T) { onEach(t, func(b *bench) { table(b, nil, rows) }) })
	}
}
