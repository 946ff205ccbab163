package redis_test

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/scripts"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A command arrives after the end of its request or hold. It grants nothing and releases nothing.
func TestScriptLate(t *testing.T) {
	copies := map[string]call{
		"acquire": acquire(me, mine, "exclusive", "", 0), "acquire and queue": acquire(me, mine, "least", "", 1),
		"renew": renew(me), "release": release(me, 1, 0, 1), "abandon": release(me, 1, 1, 1), "leave": leave(me, mine, 1),
		"complete": complete(me, "late", 1, 1), "rotate": rotate(me, again, 1, 1),
	}
	ends := map[string][]call{
		"released": {copies["release"]}, "abandoned": {copies["abandon"]}, "left": {copies["leave"]},
		"completed": {copies["complete"], forget}, "rotated": {copies["rotate"], release(again, 1, 0, 1)},
	}
	onEach(t, func(b *oneKey) {
		for end, cs := range ends {
			for late, copied := range copies {
				for _, successor := range []string{"", mismatch, "turn"} {
					b.set(nil)
					b.token(me)
					for _, c := range cs {
						b.run(c)
					}
					switch successor {
					case mismatch:
						b.token(mismatch)
					case "turn":
						b.token(mismatch)
						b.must(b.rdb.ZAdd(b.Context(), b.keys[1], redis.Z{Score: 1, Member: listener + next}).Err())
						b.must(b.rdb.PExpire(b.Context(), b.keys[1], time.Minute).Err())
						b.run(release(mismatch, 1, 0, 0))
					}
					was := b.hash()
					b.run(copied)
					if h := b.hash(); !maps.Equal(h, was) {
						b.Errorf("a late duplicate of %s after the request was %s, next holder %q:\n%v\n%v", late, end, successor, was, h)
					}
					if q := b.queue(); len(q) != 0 {
						b.Errorf("a late duplicate of %s after the request was %s, next holder %q: the queue is %q", late, end, successor, q)
					}
					b.bound()
				}
			}
		}
	})
}

// The end of a request arrives before the request, which is then not granted. The last 16 ended ids
// are kept, each once.
func TestScriptRemember(t *testing.T) {
	onEach(t, func(b *oneKey) {
		request := func(n int) string { return fmt.Sprintf("req-%022d", n) }
		b.set(nil)
		b.wantReply(leave(request(0), mine, 1), 0)
		b.wantReply(leave(request(0), mine, 1), 0)
		b.bound()
		b.ttl(time.Minute)
		b.wantReply(acquire(request(0), mine, "exclusive", "", 1), 5)
		for n := range 20 {
			for range 3 {
				b.wantReply(release(request(n), 1, 0, 1), 0)
			}
		}
		if l := b.hash()["l"]; len(l) != 16*26 || !strings.HasPrefix(l, request(4)) {
			b.Errorf("the hash has %d bytes of ids: %s", len(l), l)
		}
		b.wantReply(acquire(request(4), mine, "exclusive", "", 0), 5)
		b.wantReply(complete(request(20), "r", 1, 1), 0)
		b.wantReply(acquire(request(20), mine, "exclusive", "", 0), 5)
		b.token(me)
		b.ttl(retention)
	})
}

// The scripts use only commands and functions that each supported server has: no flags, no
// functions, no cmsgpack.
func TestScriptCommands(t *testing.T) {
	permitted := strings.Fields("TIME HMGET HSET HDEL HGET ZADD ZREM ZRANGE ZRANK ZSCORE ZCARD PUBLISH PEXPIRE PTTL DEL GET SET")
	command := regexp.MustCompile(`(redis\.\w+|\bcall)\b(\('(\w+)')?`)
	files, err := fs.Glob(scripts.Files, "*.lua")
	parts, _ := fs.Glob(scripts.Files, "parts/*.lua")
	if err != nil || len(files) != len(wire.Scripts()) || len(parts) == 0 {
		t.Fatalf("the scripts are %q, %q, %v", files, parts, err)
	}
	files = append(files, parts...)
	for _, file := range files {
		text, err := fs.ReadFile(scripts.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			if file == "parts/key.lua" && (m[0] == "redis.call" || m[0] == "call") { // local call = redis.call
				continue
			}
			if m[1] != "call" && m[1] != "redis.call" && m[1] != "redis.pcall" || !slices.Contains(permitted, m[3]) {
				t.Errorf("%s: %s", file, m[0])
			}
		}
		if bad := regexp.MustCompile(`#!|cmsgpack|cjson|KEYS\[#|loadstring`).FindString(string(text)); bad != "" {
			t.Errorf("%s: %s", file, bad)
		}
	}
}

// The server is at maxmemory. A held key can be renewed, released, completed and revoked. No new
// key is granted.
// Shows: R5
func TestScriptMemory(t *testing.T) {
	b := &oneKey{T: t, rdb: redistest.Real(t).Client(t)}
	limit := func(bytes int) { b.must(b.rdb.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err()) }
	b.use("nothing")
	for range 2 { // EVAL, then EVALSHA
		limit(1)
		for _, queue := range []int{0, 1} {
			if reply, err := b.try(acquire(me, mine, "exclusive", "", queue)); !redis.IsOOMError(err) {
				t.Errorf("acquire: %v, %v", reply, err)
			}
		}
		if n := b.rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys are stored, want 0", n)
		}
	}
	for name, c := range map[string]call{
		"renew": renew(me), "release": release(me, 1, 0, 1), "abandon": release(me, 1, 1, 1), "complete": complete(me, "r", 1, 1),
		"leave": leave(me, mine, 1), "revoke": revoke, "rotate": rotate(me, again, 1, 1),
	} {
		for clock, x := range map[string]rel{"": rel(20 * time.Second), " after the clock went back": rel(time.Hour)} {
			b.use(name + clock)
			limit(0)
			b.set(states()["mine"].with(fields{"x": x}), listener+next)
			limit(1)
			if reply, err := b.try(c); err != nil || reply[0] != int64(1) {
				t.Errorf("%s%s: %v, %v", name, clock, reply, err)
			}
			b.bound()
		}
	}
	b.use("parked")
	limit(0)
	b.set(states()["other's"])
	limit(1)
	if reply, err := b.try(park("1")); !redis.IsOOMError(err) || b.exists() != 1 {
		t.Errorf("park: %v, %v", reply, err)
	}
	b.like(states()["other's"])
	limit(0)
	b.wantReply(park("1"), 2, 0, 1, span(0), span(0))
	limit(1)
	for _, c := range []call{park("1"), unpark(0, "", "1")} { // nothing new is stored
		if _, err := b.try(c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	b.use("done")
	limit(0)
	b.set(states()["done"], listener+next)
	limit(1)
	for _, c := range []call{acquire(me, mine, "least", "", 1), inspect, forget} {
		if _, err := b.try(c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	b.use("late")
	limit(0)
	b.set(states()["other's"])
	limit(1)
	for _, c := range []call{release(me, 1, 0, 1), complete(me, "r", 1, 1), rotate(me, again, 1, 1)} {
		if reply, err := b.try(c); err != nil || reply[0] != int64(0) {
			t.Errorf("a late %s: %v, %v", c.Name, reply, err)
		}
	}
}

// A late duplicate of the command of an operator changes nothing, also if the first copy changed
// nothing.
func TestScriptLateOperator(t *testing.T) {
	operator := id("V")
	onEach(t, func(b *oneKey) {
		for name, c := range map[string]struct {
			command call
			first   int
		}{
			"revoke": {revoke.with("id", operator), 0},
			"clear":  {forget.with("id", operator), 1},
		} {
			b.use(name)
			b.set(nil)
			b.wantReply(c.command, c.first)
			b.ttl(time.Minute)
			b.token(me)
			if name == "clear" {
				b.wantReply(release(me, 1, 1, 0), 1)
			}
			was := b.hash()
			b.wantReply(c.command, 1)
			if h := b.hash(); !maps.Equal(h, was) {
				b.Errorf("a late duplicate of %s changes %v to %v", name, was, h)
			}
		}
	})
}

// A request may enter the queue until the end of a reservation. The hash is kept longer than that
// request, also if the reserved key is cleared.
func TestScriptClearReserved(t *testing.T) {
	onEach(t, func(b *oneKey) {
		b.set(states()["other's turn"])
		b.wantReply(forget.with("keep_ms", time.Minute.Milliseconds()), 1)
		b.ttl(time.Minute + window)
	})
}
