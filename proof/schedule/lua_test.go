package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/schedule"
)

// TestLikeMiniredis runs the same schedules on a schedule.Lua and on miniredis.
func TestLikeMiniredis(t *testing.T) {
	s, n := newBoth(t, wire.Texts()), testlevel.Pick(t, 15, 300, 10_000)
	for i := range uint64(n) { //nolint:gosec // it is not negative
		if _, v := schedule.Run(s, *seed+i); v != nil || s.diff != "" {
			t.Fatalf("-args -seed %d: %v, %s", *seed+i, v, s.diff)
		}
	}
}

// TestCommands compares the commands of the store with those of miniredis, also ones that the
// scripts do not use.
func TestCommands(t *testing.T) {
	s := newBoth(t, map[string]string{"any": "return redis.call(unpack(ARGV))"})
	s.OnPublish(func(string, string) int64 { return 1 })
	rnd := rand.New(rand.NewPCG(*seed, 1)) //nolint:gosec // not for secrets
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	key := func() string { return one("a", "b", "c") }
	name := func() string { return one("x", "y", "z", "é") }
	ms := func() string { return one("-1", "0", "1", "20", "1000") }
	commands := []func() []string{
		func() []string { return []string{"TIME"} },
		func() []string { return []string{"TYPE", key()} },
		func() []string { return []string{"EXISTS", key()} },
		func() []string { return []string{"DEL", key()} },
		func() []string { return []string{"PEXPIRE", key(), ms()} },
		func() []string { return []string{"PTTL", key()} },
		func() []string { return []string{"PUBLISH", name(), name()} },
		func() []string { return []string{"GET", key()} },
		func() []string { return []string{"SET", key(), name(), "PX", ms()} },
		func() []string { return []string{"SET", key(), name(), "NX", "PX", "20"} },
		func() []string { return []string{"SET", key(), name(), "KEEPTTL"} },
		func() []string { return []string{"SET", key(), name()} },
		func() []string { return []string{"HGET", key(), name()} },
		func() []string { return []string{"HMGET", key(), name(), name()} },
		func() []string { return []string{"HSET", key(), name(), one("1", "2"), name(), "3"} },
		func() []string { return []string{"HDEL", key(), name(), name()} },
		func() []string {
			return []string{"ZADD", key(), "NX", fmt.Sprint(rnd.IntN(3)), name()}
		},
		func() []string { return []string{"ZADD", key(), fmt.Sprint(rnd.IntN(3)), name()} },
		func() []string { return []string{"ZADD", key(), "GT", fmt.Sprint(rnd.IntN(3)), name()} },
		func() []string { return []string{"ZSCORE", key(), name()} },
		func() []string { return []string{"ZRANK", key(), name()} },
		func() []string { return []string{"ZREM", key(), name()} },
		func() []string { return []string{"ZCARD", key()} },
		func() []string { return []string{"ZRANGE", key(), one("0", "1"), one("0", "1", "999")} },
		func() []string {
			return []string{"ZRANGE", key(), one("0", "-1", "-2"), one("0", "999", "-1"), "WITHSCORES"}
		},
		func() []string {
			return []string{"ZRANGE", key(), one("-inf", "1", "(1"), one("+inf", "1", "(2"), "BYSCORE"}
		},
		func() []string {
			return []string{"ZRANGE", key(), one("-inf", "(0"), one("+inf", "2"), "BYSCORE", "WITHSCORES"}
		},
	}
	now := int64(1_700_000_000_000_000)
	for range testlevel.Pick(t, 1000, 20_000, 200_000) {
		now += int64(rnd.IntN(3000))
		c := commands[rnd.IntN(len(commands))]()
		if _, _ = s.Run(now, "any", []string{key()}, c); s.diff != "" {
			t.Fatalf("%v: %s", c, s.diff)
		}
	}
}
