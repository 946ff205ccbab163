package redis_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// again is the next request in a rotation of me.
var again = id("R")

const (
	rotated = 1234            // the last used token, which the rotation sends
	queued  = 3 * time.Minute // the TTL of the queue that a rotation creates
)

// rotate returns a call that ends hold and sends the request next.
func rotate(hold, next string, remember, queue int) call {
	return call{Script: wire.Rotate, make: func(k *backend.Key) wire.Command {
		return sender(mine).Rotate(&backend.ReleaseRequest{
			Key: k, ID: hold, Token: rotated, Retention: keep, Repeated: remember == 1,
			Next: &backend.AcquireRequest{ID: next, Lease: lease, Queue: queue == 1, Holder: "who " + next, Retention: retention},
		})
	}}.with("reservation", window.Microseconds()).with("queue_ms", queued.Milliseconds())
}

// queues has an empty queue, a dead waiter, and a dead waiter before a live one.
var queues = map[string][]string{"no waiter": {}, "dead waiter": keyQueue[:1], "live waiter": keyQueue}

// held has the states in which me can be released.
var held = []string{"mine", "mine after abandoned", "mine tagged", "mine over", "mine revoked", "mine revoked, over"}

// A late duplicate of a rotation arrives after the end of its next request. It releases the hold if
// that still exists. It grants and queues nothing.
func TestScriptRotateLate(t *testing.T) {
	onEach(t, func(b *oneKey) {
		for name, members := range queues {
			for _, queue := range []int{0, 1} {
				for _, state := range held {
					was := states()[state].with(fields{"l": id("X") + again})
					b.set(was, members...)
					after := was.without("s", "h", "o", "x", "d", "v", "a", "m", "g").with(fields{"f": rotated})
					if len(members) == 2 {
						after = passed(was, "a", "m", "g").with(fields{"f": rotated})
					}
					b.wantReply(rotate(me, again, 0, queue), 1, 5)
					for range 2 {
						b.like(after)
						b.ttl(keep)
						if q := b.queue(); len(q) != 0 {
							b.Errorf("%s, %s: the queue is %q", state, name, q)
						}
						b.wantReply(rotate(me, again, 0, queue), 0, 0, 0, 0, "", 0)
					}
				}
				// The duplicate arrives after release.lua has released the hold. The next request
				// never arrived, or was withdrawn.
				for _, left := range []bool{false, true} {
					b.set(states()["mine"], members...)
					b.run(release(me, 1, 0, 1))
					if left {
						b.run(leave(again, mine, 1))
					}
					was := b.hash()
					b.wantReply(rotate(me, again, 1, queue), 0, 0, 0, 0, "", 0)
					if h := b.hash(); !maps.Equal(h, was) {
						b.Errorf("%s: a late duplicate changed the hash:\n%v\n%v", name, was, h)
					}
					if q := b.queue(); len(q) != 0 {
						b.Errorf("%s: the queue is %q", name, q)
					}
				}
			}
		}
	})
}

// The next grant has the token after the last used one, and a block that begins there.
func TestScriptRotateTokens(t *testing.T) {
	onEach(t, func(b *oneKey) {
		far := b.now() + time.Hour.Microseconds() // the clock was set back
		b.set(states()["mine"].with(fields{"t": far, "f": far + 100}))
		c := rotate(me, again, 0, 1)
		c = c.with("token", far+40)
		b.wantReply(c, 1, 1, far+41, 1, 0)
		b.wantReply(c, 0, 1, far+41, 1, 0)
		b.like(states()["mine"].with(fields{
			"h": again, "m": "who " + again, "x": rel(lease), "t": far + 41, "f": far + 40,
		}))
		b.run(release(again, far+44, 0, 0))
		if token := b.token(mismatch); token != far+45 {
			b.Errorf("token %d, want %d", token, far+45)
		}

		b.set(states()["mine"].with(fields{"t": far, "f": far + 100}), listener+next)
		b.wantReply(c, 1, 0, span(window), 0, "", 1)
		if token := b.token(next); token != far+41 {
			b.Errorf("token %d, want %d", token, far+41)
		}
	})
}

// If PUBLISH does not count all receivers, the key is reserved for the first waiter, also if that is
// dead. The next request of the rotation is the last one in the queue.
func TestScriptRotateReserve(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["mine"], keyQueue...)
		c := rotate(me, again, 0, 1)
		c = c.with("counts_all", 0)
		b.wantReply(c, 1, 0, span(window), 0, "", 2)
		if h := b.hash(); h["h"] != dead || h["o"] != dead {
			b.Errorf("the key is reserved for %s, want the dead waiter", h["h"])
		}
		if q := b.queue(); !slices.Equal(q, []string{listener + next, mine + again}) {
			b.Errorf("the queue is %q", q)
		}
		if ttl := b.pttl(1); ttl > queued || ttl < queued-tolerance {
			b.Errorf("the queue is kept for %v", ttl)
		}
		if z := b.rdb.ZScore(b.Context(), b.keys[1], mine+again).Val(); !match(int64(z), rel(0), b.now()) {
			b.Errorf("score in the queue: %f", z)
		}
		b.notified()
	})
}

// A late duplicate of an acquire may get the key once more, and then a late duplicate of the
// rotation releases it. The last token in that rotation is older than that grant.
func TestScriptRotateOldToken(t *testing.T) {
	onEach(t, func(b *oneKey) {
		ahead := b.now() + time.Hour.Microseconds() // the clock was set back
		b.set(states()["mine"].with(fields{"t": ahead}))
		b.wantReply(rotate(me, again, 0, 0), 1, 1, ahead+1, 1, 0)
	})
}
