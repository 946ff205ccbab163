package fence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

const memory = "holdfast-fence:1:{r}:r" // of key r

// Do returns the reply of the command unchanged, also nil. If Redis refuses the command, Do returns
// that error, and the hold counts as seen.
func TestDo(t *testing.T) {
	onRedis(t, func(t *testing.T, rdb *redis.Client) {
		f, now := fence.Redis{Client: rdb}, tokens()
		for i, step := range []struct {
			command string
			args    []any
			want    any
		}{
			{"SET", []any{90}, "OK"},
			{"INCRBY", []any{5}, int64(95)},
			{"GET", nil, "95"},
			{"DEL", nil, int64(1)},
			{"GET", nil, nil},
			{"HSET", []any{"a", "1", "b", "x y"}, int64(2)},
		} {
			if got, err := f.Do(t.Context(), now.at(5, "a"), "r", step.command, step.args...); err != nil || got != step.want {
				t.Errorf("step %d: %v (%T), %v", i, got, got, err)
			}
		}
		got, err := f.Do(t.Context(), now.at(5, "a"), "r", "HMGET", "a", "none", "b")
		if list, ok := got.([]any); err != nil || !ok || !slices.Equal(list, []any{"1", nil, "x y"}) {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := f.Do(t.Context(), now.at(7, "c"), "r", "INCR"); err == nil || !strings.HasPrefix(err.Error(), `fence: "r": `) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("INCR of a hash: %v", err)
		}
		if _, err := f.Do(t.Context(), now.at(6, "b"), "r", "DEL"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("after a newer one that failed: %v", err)
		}
	})
}

// Advance refuses older holds and does not write the resource. The memory has a TTL that is longer
// than Keep and than a day.
func TestRedisAdvance(t *testing.T) {
	onRedis(t, func(t *testing.T, rdb *redis.Client) {
		f, now := fence.Redis{Client: rdb, Keep: time.Hour}, tokens()
		if _, err := f.Do(t.Context(), now.at(5, "a"), "r", "SET", 1); err != nil {
			t.Fatal(err)
		}
		if err := f.Advance(t.Context(), now.at(6, "b"), "r"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Do(t.Context(), now.at(5, "a"), "r", "SET", 2); !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		if v, err := rdb.Get(t.Context(), "r").Result(); v != "1" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		const day = 24 * time.Hour
		if ttl := rdb.PTTL(t.Context(), memory).Val(); ttl <= day || ttl > day+time.Minute {
			t.Errorf("TTL %v", ttl)
		}
		f.Keep = 7 * day
		if err := f.Advance(t.Context(), now.at(6, "b"), "r"); err != nil {
			t.Fatal(err)
		}
		if ttl := rdb.PTTL(t.Context(), memory).Val(); ttl <= 7*day || ttl > 7*day+time.Minute {
			t.Errorf("with a long Keep: TTL %v", ttl)
		}
		if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 2 {
			t.Errorf("keys %q", keys)
		}
	})
}

// After the memory of a resource has expired, the fence still refuses the holds that it refused
// before, and accepts new ones. Only if Redis loses its data earlier does it accept an old hold.
// Shows: F4
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		rdb := m.Client(t)
		f := fence.Redis{Client: rdb, Keep: time.Hour}
		do := func(h fence.Hold) error {
			_, err := f.Do(t.Context(), h, "r", "SET", h.Token)
			return err
		}
		old := tokens().at(0, "a")
		time.Sleep(time.Second)
		if err := do(tokens().at(0, "b")); err != nil {
			t.Fatal(err)
		}
		for wait := range 10 { // before and after the memory ends
			if err := do(old); !errors.Is(err, fence.ErrStale) {
				t.Errorf("after %d times 3 h: %v", wait, err)
			}
			time.Sleep(3 * time.Hour)
		}
		if rdb.Exists(t.Context(), memory).Val() != 0 {
			t.Error("inconclusive: the memory still exists")
		}
		var stale *fence.StaleError
		if err := do(old); !errors.As(err, &stale) || stale.Seen != 0 {
			t.Errorf("forgotten: %v", err)
		}
		recent := tokens().at(-time.Minute.Microseconds(), "c")
		if err := do(recent); err != nil {
			t.Errorf("a new hold: %v", err)
		}
		if err := do(tokens().at(0, "d")); err != nil {
			t.Error(err)
		}
		m.Redis.FlushAll()
		if err := do(recent); err != nil {
			t.Errorf("after a flush the fence still refuses an old hold, which contradicts the documentation: %v", err)
		}
	})
}

// The Keep of writers may differ by up to a day: the memory of a hold lasts for as long as any
// other writer relies on it.
// Shows: F4
func TestKeepDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Bubble(t).Client(t)
		old := tokens().at(0, "a")
		time.Sleep(time.Second)
		if err := (fence.Redis{Client: rdb, Keep: time.Minute}).Advance(t.Context(), tokens().at(0, "b"), "r"); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{3 * time.Minute, 2 * time.Hour, 22 * time.Hour} { // after the last wait the memory has expired
			time.Sleep(wait)
			for _, keep := range []time.Duration{0, time.Minute, time.Hour, 24 * time.Hour} {
				if _, err := (fence.Redis{Client: rdb, Keep: keep}).Do(t.Context(), old, "r", "SET", "old"); !errors.Is(err, fence.ErrStale) {
					t.Errorf("with Keep %v, %v later: %v", keep, wait, err)
				}
			}
		}
		if rdb.Exists(t.Context(), memory).Val() != 0 {
			t.Error("inconclusive: the memory still exists")
		}
	})
}

// A key whose memory cannot get the same slot, a client that is unsuitable, and other bad input are
// errors. Do sends nothing.
func TestRedisBadInput(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _, _ = rdb.Close(), ring.Close() }()
	h := tokens().at(0, "a")
	for name, c := range map[string]struct {
		f            fence.Redis
		key, command string
		want         string
	}{
		"no client":  {fence.Redis{}, "r", "GET", "Client is nil"},
		"ring":       {fence.Redis{Client: ring}, "r", "GET", "Ring"},
		"keep":       {fence.Redis{Client: rdb, Keep: time.Second}, "r", "GET", "Keep"},
		"long keep":  {fence.Redis{Client: rdb, Keep: 367 * 24 * time.Hour}, "r", "GET", "Keep"},
		"no key":     {fence.Redis{Client: rdb}, "", "GET", "empty"},
		"no command": {fence.Redis{Client: rdb}, "r", "", "command"},
		"open":       {fence.Redis{Client: rdb}, "a{b", "GET", "hash tag"},
		"closed":     {fence.Redis{Client: rdb}, "a}b", "GET", "hash tag"},
		"empty tag":  {fence.Redis{Client: rdb}, "a{}{b}", "GET", "hash tag"},
	} {
		if _, err := c.f.Do(t.Context(), h, c.key, c.command); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of Redis, of the client or of the context is returned with the quoted key, and errors.Is
// and errors.As still find it.
func TestRedisErrors(t *testing.T) {
	h := tokens().at(0, "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := redis.NewClient(&redis.Options{})
	_ = closed.Close()
	full := redistest.Bubble(t).Client(t)
	if err := full.LPush(t.Context(), "a\nb", 1).Err(); err != nil {
		t.Fatal(err)
	}
	do := func(ctx context.Context, rdb *redis.Client) error {
		_, err := fence.Redis{Client: rdb}.Do(ctx, h, "a\nb", "INCR")
		return err
	}
	said, gone, over := do(t.Context(), full), do(t.Context(), closed), do(ended, full)
	for _, err := range []error{said, gone, over} {
		if err == nil || !strings.HasPrefix(err.Error(), `fence: "a\nb": `) {
			t.Errorf("got %v", err)
		}
	}
	if _, ok := errors.AsType[redis.Error](said); !ok || !errors.Is(gone, redis.ErrClosed) || !errors.Is(over, context.Canceled) {
		t.Errorf("the wrapped errors are not found: %v, %v, %v", said, gone, over)
	}
}

// If the memory does not decode or has another type, Do returns an error and does not write.
func TestRedisStrangerInMemory(t *testing.T) {
	onRedis(t, func(t *testing.T, rdb *redis.Client) {
		f, h := fence.Redis{Client: rdb}, tokens().at(0, "a")
		for _, plant := range []func() error{
			func() error { return rdb.Set(t.Context(), memory, "what", 0).Err() },
			func() error { return rdb.Set(t.Context(), memory, "", 0).Err() },
			func() error { return rdb.Set(t.Context(), memory, "-5 a", 0).Err() },
			func() error {
				return errors.Join(rdb.Del(t.Context(), memory).Err(), rdb.LPush(t.Context(), memory, "x").Err())
			},
		} {
			if err := plant(); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Do(t.Context(), h, "r", "SET", 1); err == nil || !strings.Contains(err.Error(), "does not decode") && !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("got %v", err)
			}
		}
		if rdb.Exists(t.Context(), "r").Val() != 0 {
			t.Error("written")
		}
	})
}

// At maxmemory Do returns an error and writes neither the resource nor the memory, also if the
// command would free memory.
func TestRedisFull(t *testing.T) {
	rdb := redistest.Real(t).Client(t)
	f, h := fence.Redis{Client: rdb}, tokens().at(0, "a")
	if err := rdb.Set(t.Context(), "r", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"DEL", "INCR"} {
		if _, err := f.Do(t.Context(), h, "r", command); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v", command, err)
		}
	}
	if n := rdb.Exists(t.Context(), "r", memory).Val(); n != 1 || rdb.Get(t.Context(), "r").Val() != "v" {
		t.Errorf("%d keys", n)
	}
}

// In Cluster mode a key and the data of its fence are in one slot, for any braces in the key. Two
// keys never share that data.
func TestRedisCluster(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Real(t, "--cluster-enabled", "yes")
	node := s.Client(t)
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for range 200 { // the node updates its state ten times a second
		if strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { _ = rdb.Close() }()
	f, now := fence.Redis{Client: rdb}, tokens()
	keys := []string{"r", "{r}", "{r}:r", "x:{r}", "x{r}y{z}", "{{r}", "a}{r}", "{r}}", "a b", "é", "\x00\xff", "k:{a:b}", ":r", "r:"}
	for i, key := range keys {
		if _, err := f.Do(t.Context(), now.at(int64(len(keys)-i), key), key, "SET", key); err != nil { // falling tokens: a shared memory would refuse the second key
			t.Errorf("%q: %v", key, err)
		}
	}
	if all := node.Keys(t.Context(), "*").Val(); len(all) != 2*len(keys) {
		t.Errorf("%d Redis keys of %d: %q", len(all), len(keys), all)
	}
}
