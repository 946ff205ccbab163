package redis_test

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const (
	parkTime  = time.Hour // the time for which entries are kept
	mostParks = 3         // the bound of the entries of a key
)

func park(entry string) call {
	return call{Script: wire.Park, make: func(k *backend.Key) wire.Command {
		return sender(mine).Park(&backend.ParkRequest{Key: k, Entry: entry, Most: mostParks, Keep: parkTime})
	}}
}

func unpark(woken int, prefix string, remove ...string) call {
	return call{Script: wire.Unpark, make: func(k *backend.Key) wire.Command {
		return sender(mine).Unpark(&backend.UnparkRequest{Key: k, Remove: remove, Woken: woken, Prefix: prefix})
	}}
}

func callParkingLocker(payload string) call {
	return call{Script: wire.CallParkingLocker, make: sender(mine).CallParkingLocker}.with("wake", payload)
}

// exists returns how many of the stored names of the key exist.
func (b *oneKey) exists() int64 {
	b.Helper()
	n, err := b.rdb.Exists(b.Context(), b.keys...).Result()
	b.must(err)
	return n
}

// The TTL of the hash is ten minutes, because it says that there are entries. The entries end after
// the longest time for which one was parked. The marks end when they have no more effect.
func TestScriptParkTTL(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["other's turn"])
		b.must(b.rdb.PExpire(b.Context(), b.keys[0], time.Minute).Err())
		b.run(park("1"))
		b.ttl(backend.ParkedTTL)
		b.run(park("2").with("keep_ms", int64(1000)))
		if ttl := b.pttl(2); ttl > parkTime || ttl < parkTime-tolerance {
			b.Errorf("the entries are kept for %v", ttl)
		}
		b.run(park("2").with("keep_ms", 2*parkTime.Milliseconds()))
		if ttl := b.pttl(2); ttl < 2*parkTime-tolerance {
			b.Errorf("the entries are kept for %v", ttl)
		}
		b.wantReply(unpark(2, ""), 0, 0, 2, span(0), rel(0), "1", "2")
		if ttl := b.pttl(3); ttl > backend.WokenTime || ttl < backend.WokenTime-tolerance {
			b.Errorf("the marks are kept for %v", ttl)
		}
		b.run(unpark(0, "", "1", "2"))
		if h := b.hash(); h["p"] != "" || b.exists() != 1 {
			b.Errorf("after all entries were removed %d names exist, and the hash is %v", b.exists(), h)
		}
	})
}

// The data of a phase in which all shares cool is kept for a minute after them. An entry that is
// parked meanwhile keeps the shares as long as the hash. If they expired earlier, their fields would
// stay in the hash of a key that is used again and again.
// Shows: I8
func TestScriptParkKeepsCoolingShares(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.run(acquireShare(me+permit, mine, 0))
		b.run(releaseShare(me+permit, 0, time.Second))
		b.ttl(time.Second + time.Minute)
		b.run(park("1"))
		b.ttl(backend.ParkedTTL)
		shares := b.rdb.PTTL(b.Context(), b.keys[0]+":s").Val()
		if shares < b.rdb.PTTL(b.Context(), b.keys[0]).Val() {
			b.Errorf("the shares are kept for %v, less than the hash", shares)
		}
	})
}

// The first parked entry converts a plain hold to a hash. No other command with parked entries
// does.
func TestScriptParkPlain(t *testing.T) {
	onEach(t, func(b *oneKey) {
		kind := func(want string) {
			b.Helper()
			if got := b.rdb.Type(b.Context(), b.keys[0]).Val(); got != want {
				b.Errorf("the key is a %s, want a %s", got, want)
			}
		}
		hold := acquire(me, mine, "exclusive", "", 0).with("plain", 1)
		token := b.run(hold)[0]
		b.wantReply(unpark(1, "", "1"), 0, 0, 0, 0, rel(0))
		b.wantReply(callParkingLocker("px"), 0)
		b.wantReply(park("1").with("most", 0), 1, 0, 0) // the bound is reached
		kind("string")
		b.wantReply(park("1"), 2, 0, 1, span(0), span(0))
		kind("hash")
		end := release(me, token, 0, 0).with("plain", 1)
		b.wantReply(end, 1, 1)
		b.ttl(backend.ParkedTTL)
		b.wantReply(unpark(1, "", "1"), 1, span(0), 0, 0, rel(0))

		b.use("expired")
		b.run(hold.with("lease", 1))
		b.wantReply(park("1"), 0)
		kind("string")
		b.use("done")
		b.run(acquire(me, mine, "least", "", 0).with("plain", 1))
		b.run(complete(me, "r", 1, 0).with("plain", 1))
		b.wantReply(park("1"), 0)
		kind("string")
	})
}

// A mark may be in the future, if the clock was set back, and a mark may have no entry. Such marks
// have no effect and are removed.
func TestScriptParkMarks(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["other's"])
		b.run(park("1"))
		now := float64(b.now())
		b.must(b.rdb.ZAdd(b.Context(), b.keys[3], redis.Z{Score: now + 60e6, Member: "1"}, redis.Z{Score: now - 1e6, Member: "2"}).Err())
		b.wantReply(unpark(1, ""), 0, 0, 1, span(0), rel(0), "1")
		if marks := b.rdb.ZRange(b.Context(), b.keys[3], 0, -1).Val(); len(marks) != 1 {
			b.Errorf("the marks are %q, want one", marks)
		}
		b.wantReply(unpark(1, ""), 0, 0, 1, span(0), rel(0))
		b.must(b.rdb.ZAdd(b.Context(), b.keys[2], redis.Z{Score: now + 60e6, Member: "1"}).Err()) // parked in the future
		b.wantReply(park("1"), 2, 0, 1, 0, 0)
		b.wantReply(unpark(0, "", "1"), 1, 0, 0, 0, rel(0))
	})
}

// A client writes a score that no script writes. The reply of a script is still readable.
func TestScriptParkScores(t *testing.T) {
	onEach(t, func(b *oneKey) {
		for _, score := range []float64{math.Inf(-1), -1e300, -1, math.Inf(1), 1e300} {
			b.set(states()["other's"])
			b.run(park("1"))
			b.must(b.rdb.ZAdd(b.Context(), b.keys[2], redis.Z{Score: score, Member: "2"}).Err())
			for _, c := range []call{park("2"), unpark(2, ""), unpark(0, "", "2")} {
				for i, v := range b.run(c) {
					if n, ok := v.(int64); ok && n < 0 {
						b.Errorf("score %v: %s returns %d at %d", score, c.Name, n, i)
					}
				}
			}
			b.must(b.rdb.Del(b.Context(), b.keys...).Err())
		}
	})
}

// A script reads only the 1,000 oldest entries.
func TestScriptParkMany(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["other's"])
		entries := make([]redis.Z, 1001)
		for i := range entries {
			entries[i] = redis.Z{Score: float64(i), Member: fmt.Sprint("other ", i)}
		}
		entries[999].Member, entries[1000].Member = "mine 1", "mine 2"
		b.must(b.rdb.ZAdd(b.Context(), b.keys[2], entries...).Err())
		if reply := b.run(unpark(2, "mine")); len(reply) != 6 || reply[5] != "mine 1" {
			b.Errorf("unpark returns %v, want the entry \"mine 1\"", reply)
		}
	})
}

// Data that no script writes is an error, and the script writes nothing.
func TestScriptParkUnreadable(t *testing.T) {
	onEach(t, func(b *oneKey) {
		for _, field := range []string{"x", "d", "t", "f", "n"} {
			b.set(states()["other's"].with(fields{field: "abc"}))
			was := b.hash()
			if _, err := b.try(park("1")); err == nil || !strings.Contains(err.Error(), "BADFIELD "+field) {
				b.Errorf("%s: park returns %v", field, err)
			}
			if h := b.hash(); !maps.Equal(h, was) || b.exists() != 1 {
				b.Errorf("%s: park changed the hash to %v", field, h)
			}
		}
		for i := range b.keys[2:] {
			b.set(states()["other's"])
			b.run(park("1"))
			was := b.hash()
			b.must(b.rdb.Del(b.Context(), b.keys[2+i]).Err())
			b.must(b.rdb.Set(b.Context(), b.keys[2+i], "text", 0).Err())
			for _, c := range []call{park("1"), park("2"), unpark(1, "", "1")} {
				if _, err := b.try(c); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					b.Errorf("%s returns %v for entries of another type", c.Name, err)
				}
			}
			if h := b.hash(); !maps.Equal(h, was) {
				b.Errorf("the hash is %v, was %v", h, was)
			}
			b.must(b.rdb.Del(b.Context(), b.keys...).Err())
		}
	})
}
