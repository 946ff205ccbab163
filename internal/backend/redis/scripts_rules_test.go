package redis_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func (b *oneKey) hash() map[string]string {
	b.Helper()
	h, err := b.rdb.HGetAll(b.Context(), b.keys[0]).Result()
	b.must(err)
	return h
}

// notified waits for these notifications to listener, and checks that there is no other.
func (b *oneKey) notified(want ...string) {
	b.Helper()
	for _, w := range want {
		select {
		case m := <-b.heard:
			if m.Payload != w {
				b.Errorf("listener got the notification %q, want %q", m.Payload, w)
			}
		case <-time.After(tolerance):
			b.Fatalf("listener did not get the notification %q", w)
		}
	}
	select {
	case m := <-b.heard:
		b.Errorf("listener also got the notification %q", m.Payload)
	default:
	}
}

// token acquires the key for request and returns its token.
func (b *oneKey) token(request string) int64 {
	b.Helper()
	reply := b.run(acquire(request, listener, "exclusive", "", 0))
	if len(reply) != 4 || reply[0] != int64(1) {
		b.Fatalf("acquire returns %v, want a grant", reply)
	}
	return reply[1].(int64) //nolint:errcheck,forcetypeassert // a panic here is a failure
}

// Tokens grow with each hold, also if the hash is deleted, or the clock is behind the last token.
// Shows: I3
func TestScriptTokens(t *testing.T) {
	onEach(t, func(b *oneKey) {
		last := int64(0)
		grow := func(how string) {
			b.Helper()
			token := b.token(me)
			if token <= last {
				b.Errorf("%s: token %d after %d", how, token, last)
			}
			last = token
		}
		grow("new")
		b.run(release(me, last, 0, 0))
		grow("released")
		b.must(b.rdb.Del(b.Context(), b.keys...).Err())
		grow("deleted")
		b.must(b.rdb.HSet(b.Context(), b.keys[0], "x", b.now()-1).Err())
		b.must(b.rdb.HSet(b.Context(), b.keys[0], "h", mismatch).Err())
		grow("expired")
		b.run(leave(me, listener, 0))
		grow("left")
		b.run(complete(me, "r", last, 0))
		b.run(forget)
		grow("cleared")

		far := b.now() + time.Hour.Microseconds() // the clock was set back
		b.set(states()["free"].with(fields{"f": far}))
		if token := b.token(me); token != far+1 {
			b.Errorf("token %d after %d", token, far)
		}
		b.run(release(me, far+3, 0, 0))
		if token := b.token(me); token != far+4 {
			b.Errorf("token %d, want %d, the one after the last used token", token, far+4)
		}
		for _, ends := range []func(){func() { b.token(mismatch) }, func() { b.run(forget); b.token(mismatch) }} { // the hold expired, and may have used its block
			b.set(states()["mine"].with(fields{"t": far, "x": rel(-time.Second)}))
			if ends(); b.hash()["t"] != strconv.FormatInt(far+512, 10) {
				b.Errorf("token %s after a block from %d", b.hash()["t"], far)
			}
		}
	})
}

// Numbers up to 9e15 are stored exactly. A larger number is unreadable.
func TestScriptNumbers(t *testing.T) {
	onEach(t, func(b *oneKey) {
		for _, f := range []int64{1_700_000_000_000_001 << 1, 1<<52 + 1, 9e15 - 1} {
			b.set(states()["free"].with(fields{"f": f}))
			b.wantReply(acquire(me, mine, "exclusive", "", 0), 1, f+1, 1, 0)
			b.wantReply(acquire(me, mine, "exclusive", "", 0), 1, f+1, 1, 0)
			if h := b.hash(); h["t"] != strconv.FormatInt(f+1, 10) {
				b.Errorf("t is %s after %d", h["t"], f)
			}
			b.run(renew(me))
			for name, v := range b.hash() {
				if strings.Contains("xdtfn", name) && !regexp.MustCompile(`^\d+$`).MatchString(v) {
					b.Errorf("%s is %q", name, v)
				}
			}
		}
		b.set(states()["other's"])
		b.run(acquire(me, mine, "exclusive", "", 1))
		if z := b.rdb.ZScore(b.Context(), b.keys[1], mine+me).Val(); z != float64(int64(z)) || !match(int64(z), rel(0), b.now()) {
			b.Errorf("score in the queue: %f", z)
		}
	})
}

// The stored end of a state is further away than the state can last, because the clock was set
// back. The scripts replace it by the longest possible end.
// Shows: P1, B6
func TestScriptClock(t *testing.T) {
	onEach(t, func(b *oneKey) {
		far := fields{"x": rel(20 * time.Hour), "t": rel(19 * time.Hour)}
		b.set(states()["other's"].with(far))
		b.wantReply(acquire(me, mine, "exclusive", "", 0), 0, span(lease), 0, "who "+mismatch, 0, "", listener)
		b.like(states()["other's"].with(far).with(fields{"x": rel(lease)}))

		b.set(states()["mine"].with(far))
		b.wantReply(inspect, "h", "who "+me, 0, span(lease), rel(19*time.Hour), 1, 0, 1, 0, 0, span(standing), mine, 0, "", 0, "", 0, 0, 0, 0, "", 0, nil, 0, "", 0, span(lease))
		b.wantReply(renew(me), 1)
		b.like(states()["mine"].with(far).with(fields{"x": rel(lease)}))

		b.set(states()["free"].with(fields{"y": fmt.Sprint(b.now()+(20*time.Hour).Microseconds(), " ", time.Minute.Microseconds(), " 429")}))
		b.run(acquire(me, mine, "exclusive", "", 0))
		if ends, _ := strconv.ParseInt(strings.Split(b.hash()["y"], " ")[0], 10, 64); ends > b.now()+time.Minute.Microseconds() || ends < b.now()+(time.Minute-10*time.Second).Microseconds() {
			b.Errorf("the pause is %q at %d", b.hash()["y"], b.now())
		}

		b.set(states()["other's turn"].with(fields{"x": rel(20 * time.Hour)}))
		b.wantReply(acquire(me, mine, "exclusive", "", 0), 0, span(window), 0, "", 0, "")
		for _, state := range []string{"free", "abandoned", "done"} {
			b.set(states()[state])
			b.run(inspect)
			b.like(states()[state])
		}
	})
	t.Run("set back", func(t *testing.T) {
		m := redistest.Bubble(t)
		b := &oneKey{T: t, rdb: m.Client(t)}
		b.use("k")
		start := time.Now()
		m.Redis.SetTime(start)
		first := b.token(me)
		m.Redis.SetTime(start.Add(-time.Hour))
		b.wantReply(renew(me), 1)
		b.wantReply(acquire(mismatch, listener, "exclusive", "", 0), 0, span(lease), 0, "who "+me, 0, "", listener)
		m.Redis.SetTime(start.Add(lease - time.Hour))
		b.wantReply(renew(me), 0)
		if second := b.token(mismatch); second != first+512 { // the expired hold may have used its block
			b.Errorf("token %d after %d", second, first)
		}
	})
}

// If PUBLISH does not count all receivers, a key is reserved for the first waiter, also if that is
// dead. Its withdrawal passes the key on.
func TestScriptReserve(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["mine"], keyQueue...)
		b.wantReply(release(me, 1, 0, 0).with("counts_all", 0), 1)
		if h := b.hash(); h["h"] != dead || h["o"] != dead {
			b.Errorf("the key is reserved for %s, want the dead waiter", h["h"])
		}
		b.wantReply(leave(dead, dead, 0), 1)
		b.notified("w" + next)
	})
}
