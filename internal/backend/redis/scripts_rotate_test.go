package redis_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// again is what a rotation of me asks for next.
var again = id("R")

const (
	rotated = 1234            // last token that a rotation says was used
	queued  = 3 * time.Minute // TTL of the queue that it makes
)

// rotate ends hold and asks for next.
func rotate(hold, next string, remember, queue int) call {
	return call{"rotate", []any{
		hold, rotated, keep.Milliseconds(), remember, window.Microseconds(), wakes, 1,
		next, mine, lease.Microseconds(), queue, "who " + next, retention.Milliseconds(), queued.Milliseconds(),
	}}
}

// lines are who may stand in line: nobody, somebody dead, and somebody who can be told behind him.
var lines = map[string][]string{"nobody waits": {}, "somebody dead waits": keyQueue[:1], "somebody waits": keyQueue}

// held are the states in which me can be released.
var held = []string{"mine", "mine after abandoned", "mine tagged", "mine over", "mine revoked", "mine revoked, over"}

// Whatever the key was, its hold is released as release.lua would, and the next ask gets what acquire.lua would give it, behind
// whoever can be told; a repeat changes nothing.
func TestScriptRotate(t *testing.T) {
	for who, line := range lines {
		for _, queue := range []int{0, 1} {
			for _, remember := range []int{0, 1} {
				granted := func(was fields) row {
					return row{
						reply: []any{1, 1, rel(0), 1, 0}, again: []any{0, 1, rel(0), 1, 0}, ttl: retention, line: []string{},
						after: was.without("v", "a", "g").with(fields{
							"s": "h", "h": again, "o": mine, "x": rel(lease), "d": span(lease), "m": "who " + again, "t": rel(0), "f": rotated,
						}),
					}
				}
				others := func(was fields) row {
					r := row{reply: []any{1, 0, span(window), 0, "", queue}, again: []any{0, 0, 0, 0, "", queue}, ttl: keep, line: []string{}}
					if queue == 1 {
						r.line = []string{mine + again}
					}
					r.after = passed(was, "a", "m", "g").with(fields{"f": rotated})
					return r
				}
				some := each(granted, held...)
				if len(line) == 2 {
					some = each(others, held...)
				}
				rows := all(rotate(me, again, remember, queue), []any{0, 0, 0, 0, "", len(line)}, some)
				if remember == 1 {
					rows = remembering(rows)
				}
				t.Run(who+"/"+strconv.Itoa(queue)+strconv.Itoa(remember), func(t *testing.T) {
					onEach(t, func(b *bench) { table(b, line, rows) })
				})
			}
		}
	}
}

// remembering makes rows of a call that remembers me.
func remembering(rows map[string]func(fields) row) map[string]func(fields) row {
	rows = maps.Clone(rows)
	for name, make := range rows {
		rows[name] = func(was fields) row {
			r := make(was)
			if r.after == nil {
				r.after = was
			}
			if _, ok := was["l"]; !ok { // me stands there
				r.after = r.after.with(fields{"l": me})
			}
			if len(was) == 0 {
				r.ttl = time.Minute
			}
			return r
		}
	}
	return rows
}

// A repeat, in any state that its next ask may have come to meanwhile, says that it runs or must ask; it is never queued again.
func TestScriptRotateRepeat(t *testing.T) {
	runs := func(abandoned int) func(fields) row {
		return func(fields) row { return row{reply: []any{0, 1, rel(-10 * time.Second), 1, abandoned}} }
	}
	some := each(runs(0), "mine", "mine tagged")
	some["mine after abandoned"] = runs(1)
	onEach(t, func(b *bench) {
		for _, queue := range []int{0, 1} {
			table(b, keyQueue, all(rotate(id("H"), me, 0, queue), []any{0, 0, 0, 0, "", 2}, some))
		}
	})
}

// A late copy whose next ask has ended frees the hold if that is still there, and grants and queues nothing.
func TestScriptRotateLate(t *testing.T) {
	onEach(t, func(b *bench) {
		for who, line := range lines {
			for _, queue := range []int{0, 1} {
				for _, state := range held {
					was := states()[state].with(fields{"l": id("X") + again})
					b.set(was, line...)
					after := was.without("s", "h", "o", "x", "d", "v", "a", "m", "g").with(fields{"f": rotated})
					if len(line) == 2 {
						after = passed(was, "a", "m", "g").with(fields{"f": rotated})
					}
					b.answers(rotate(me, again, 0, queue), 1, 5)
					for range 2 {
						b.like(after)
						b.ttl(keep)
						if q := b.queue(); len(q) != 0 {
							b.Errorf("%s, %s: in line %q", state, who, q)
						}
						b.answers(rotate(me, again, 0, queue), 0, 0, 0, 0, "", 0)
					}
				}
				// The copy comes after the hold was released by release.lua, and the next ask never arrived or left.
				for _, left := range []bool{false, true} {
					b.set(states()["mine"], line...)
					b.run(release(me, 1, 0, 1))
					if left {
						b.run(leave(again, mine, 1))
					}
					was := b.hash()
					b.answers(rotate(me, again, 1, queue), 0, 0, 0, 0, "", 0)
					if h := b.hash(); !maps.Equal(h, was) {
						b.Errorf("%s: after a late copy:\n%v\n%v", who, was, h)
					}
					if q := b.queue(); len(q) != 0 {
						b.Errorf("%s: in line %q", who, q)
					}
				}
			}
		}
	})
}

// Tokens go on behind the last that was used, by blocks.
func TestScriptRotateTokens(t *testing.T) {
	onEach(t, func(b *bench) {
		far := b.now() + time.Hour.Microseconds() // the clock went back
		b.set(states()["mine"].with(fields{"t": far, "f": far + 100}))
		c := rotate(me, again, 0, 1)
		c.args[1] = far + 40
		b.answers(c, 1, 1, far+41, 1, 0)
		b.answers(c, 0, 1, far+41, 1, 0)
		b.like(states()["mine"].with(fields{
			"h": again, "m": "who " + again, "x": rel(lease), "t": far + 41, "f": far + 40,
		}))
		b.run(release(again, far+44, 0, 0))
		if token := b.token(mismatch); token != far+45 {
			b.Errorf("token %d, want %d", token, far+45)
		}

		b.set(states()["mine"].with(fields{"t": far, "f": far + 100}), waker+next)
		b.answers(c, 1, 0, span(window), 0, "", 1)
		if token := b.token(next); token != far+41 {
			b.Errorf("token %d, want %d", token, far+41)
		}
	})
}

// Others go first, by arrival, and each is told; the next ask stands behind them all, for as long as the queue is kept.
func TestScriptRotateLine(t *testing.T) {
	onEach(t, func(b *bench) {
		for len(b.heard) > 0 {
			<-b.heard
		}
		b.set(states()["mine"], dead+dead, waker+next, waker+mismatch)
		b.answers(rotate(me, again, 0, 1), 1, 0, span(window), 0, "", 2)
		b.told("w" + next)
		if q := b.queue(); !slices.Equal(q, []string{waker + mismatch, mine + again}) {
			b.Errorf("in line %q", q)
		}
		if ttl := b.rdb.PTTL(b.Context(), b.keys[1]).Val(); ttl > queued || ttl < queued-tolerance {
			b.Errorf("the queue is kept for %v", ttl)
		}
		if z := b.rdb.ZScore(b.Context(), b.keys[1], mine+again).Val(); !match(int64(z), rel(0), b.now()) {
			b.Errorf("place in line %f", z)
		}
		b.token(next)
		b.answers(release(next, 1, 0, 0), 1)
		b.told("w" + mismatch)

		b.set(states()["mine"]) // alone: nobody is told, and the key comes straight back
		b.answers(rotate(me, again, 0, 1), 1, 1, rel(0), 1, 0)
		b.must(b.rdb.ZAdd(b.Context(), b.keys[1], redis.Z{Score: 1, Member: waker + next}).Err())
		b.must(b.rdb.PExpire(b.Context(), b.keys[1], time.Minute).Err())
		b.answers(rotate(again, me, 0, 1), 1, 0, span(window), 0, "", 1)
		b.told("w" + next)

		b.set(states()["mine"], keyQueue...) // PUBLISH does not count everybody
		c := rotate(me, again, 0, 1)
		c.args[6] = 0
		b.answers(c, 1, 0, span(window), 0, "", 2)
		if h := b.hash(); h["h"] != dead || h["o"] != dead {
			b.Errorf("turn of %s", h["h"])
		}
		if q := b.queue(); !slices.Equal(q, []string{waker + next, mine + again}) {
			b.Errorf("in line %q", q)
		}
		b.told()
	})
}

// A late copy of an acquire may get the key once more, and then a late copy of the rotation releases
// it. Its last token is older than that grant.
func TestScriptRotateOldToken(t *testing.T) {
	onEach(t, func(b *bench) {
		ahead := b.now() + time.Hour.Microseconds() // the clock was set back
		b.set(states()["mine"].with(fields{"t": ahead}))
		b.answers(rotate(me, again, 0, 0), 1, 1, ahead+1, 1, 0)
	})
}
