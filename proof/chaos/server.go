package chaos

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Locker returns a Locker on rdb. At the end of the test it is closed, which must succeed within 10
// s.
func Locker(tb testing.TB, rdb redis.UniversalClient, o lockcore.Options) *lockcore.Locker {
	tb.Helper()
	locks, err := lockcore.New(rdb, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return locks
}

// Within waits until ok returns true. It returns false if that takes longer than bound.
func Within(bound time.Duration, ok func() bool) bool {
	for end := time.Now().Add(bound); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// CheckTTLs checks that each key has a TTL. That holds at any moment.
func CheckTTLs(tb testing.TB, rdb *redis.Client) (all []string) {
	tb.Helper()
	ctx := context.Background()
	all, err := rdb.Keys(ctx, "holdfast:*").Result()
	if err != nil {
		tb.Error(err)
	}
	for _, key := range all {
		if rdb.PTTL(ctx, key).Val() == -1 { // -2: it has expired since
			tb.Errorf("%s has no TTL", key)
		}
	}
	return all
}

// CheckLeftovers checks that each key has a TTL, and that each one with the prefix is free or done, has an empty queue
// and no parked entries, and only triggers that have ended. There may
// be no key at all, because the release of a plain hold deletes it. A key may be reserved for less
// than reserved, for a process that was killed in its queue.
func CheckLeftovers(tb testing.TB, rdb *redis.Client, prefix string, reserved time.Duration) {
	tb.Helper()
	ctx := context.Background()
	for _, key := range CheckTTLs(tb, rdb) {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if strings.HasSuffix(key, ":w") || strings.Contains(key, "}:q:") { // marks of woken entries, and counts of waiting calls, end by themselves
			continue
		}
		if strings.HasSuffix(key, ":t") {
			for _, trigger := range rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: key, Start: "1", Stop: "+inf", ByScore: true}).Val() {
				if trigger != "=" { // the last success
					tb.Errorf("trigger %s is left in %s", trigger, key)
				}
			}
			continue
		}
		if strings.HasSuffix(key, ":q") || strings.HasSuffix(key, ":p") {
			if n := rdb.ZCard(ctx, key).Val(); n > 0 {
				tb.Errorf("%d members are left in %s", n, key)
			}
			continue
		}
		fields, err := redistest.Fields(ctx, rdb, key)
		end, _ := strconv.ParseInt(fields["x"], 10, 64)
		switch state := fields["s"]; {
		case err != nil:
			tb.Errorf("%s: %v", key, err)
		case state == "", state == "d", state == "r" && reserved > 0 && time.Until(time.UnixMicro(end)) < reserved:
		default:
			tb.Errorf("%s is left in state %q", key, state)
		}
	}
}
