package locktest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Run finds a Redis, or a connection to it, that misbehaves. Each test breaks one thing.

// failsWith fails unless the check whose name contains part has failed with a message that contains
// want.
func failsWith(t *testing.T, failed map[string]string, part, want string) {
	t.Helper()
	for name, said := range failed {
		if strings.Contains(name, part) && strings.Contains(said, want) {
			return
		}
	}
	t.Errorf("%q has not failed with %q; failed checks: %q", part, want, failed)
}

func clientOf(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// again calls f until the test ends.
func again(t *testing.T, every time.Duration, f func()) {
	t.Helper()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); work.Wait() })
}

// twoPrimaries is a client whose connections go to one of two servers, as behind a name that
// resolves to both.
func twoPrimaries(t *testing.T) *redis.Client {
	t.Helper()
	o, other := locktest.NewServer(t).Options(), locktest.NewServer(t).Options().Dialer
	first := o.Dialer
	var n atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n.Add(1)%2 == 0 {
			return other(ctx, network, addr)
		}
		return first(ctx, network, addr)
	}
	return clientOf(t, o)
}

// Two primaries behind one address cause two holders, or holders that lose their keys all the time.
func TestRunFindsTwoPrimaries(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	failsWith(t, locktest.RunChecks(t, twoPrimaries(t), "one holder"), "one holder", "")
}

// Run fails its test with a subtest that names the defect, and deletes its keys. A Redis that
// cannot be used fails once.
// Shows: P6
func TestRunFails(t *testing.T) {
	testlevel.Full(t)
	const child = "LOCKTEST_BROKEN"
	switch os.Getenv(child) {
	case "two":
		locktest.Run(t, twoPrimaries(t), lockcore.Options{})
		return
	case "ring":
		locktest.Run(t, redis.NewRing(&redis.RingOptions{}), lockcore.Options{})
		return
	case "away":
		locktest.Run(t, clientOf(t, &redis.Options{Addr: "127.0.0.1:1"}), lockcore.Options{})
		return
	}
	t.Parallel()
	for broken, want := range map[string]string{
		"two": "--- FAIL: TestRunFails/one_holder", "ring": "redis.Ring shards", "away": "locktest: run: lockcore: unavailable",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRunFails$/one_holder", "-test.short") //nolint:gosec // this program
		cmd.Env = append(os.Environ(), child+"="+broken)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want a failure that says %q:\n%s", broken, err, want, out)
		}
		if strings.Contains(string(out), "left behind") {
			t.Errorf("%s: it does not clean up:\n%s", broken, out)
		}
	}
}

// A flush during a hold appears as a second holder.
func TestRunFindsFlush(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := locktest.NewServer(t)
	rdb := clientOf(t, s.Options())
	again(t, 20*time.Millisecond, func() { _ = rdb.FlushAll(context.Background()).Err() }) // the next one may succeed
	failsWith(t, locktest.RunChecks(t, rdb, "one holder", "watchdog"), "one holder", "a second holder was inside")
}

// A policy that evicts keys is a problem even while memory is free.
func TestRunFindsEviction(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-random")
	failsWith(t, locktest.RunChecks(t, s.Client(t), "doctor"), "doctor", "maxmemory-policy is allkeys-random")
}

// evicting deletes the keys of each script after the script has run.
type evicting struct{ redis.UniversalClient }

func (c evicting) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	defer c.Del(context.Background(), keys...)
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Run finds a server that evicts keys, also if the server does not report its policy.
func TestRunFindsEvicted(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := locktest.NewServer(t)
	rdb := evicting{clientOf(t, s.Options())}
	again(t, time.Millisecond, func() { rdb.Del(context.Background(), s.Names()...) }) // also the keys of pipelines
	failed := locktest.RunChecks(t, rdb, "watchdog", "failed run", "keeps the key", "permits", "a writer", "a ticket", "every key")
	failsWith(t, failed, "watchdog", "another call got the key too")
	failsWith(t, failed, "failed run", "")
	failsWith(t, failed, "permits", "times the weights exceeded the limit")
	failsWith(t, failed, "a writer", "")
	failsWith(t, failed, "a ticket", "")
	failsWith(t, failed, "keeps the key", "") // "want cooling", or a release that finds no data
	failsWith(t, failed, "every key", "no key is left")
}

// deaf subscribes to channels on which no message is published.
type deaf struct{ redis.UniversalClient }

func (d deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	for i := range channels {
		channels[i] += ":elsewhere"
	}
	return d.UniversalClient.Subscribe(ctx, channels...)
}

// Run finds that messages do not arrive: a waiter gets the key only with its next request.
func TestRunFindsSilentChannels(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	rdb := deaf{clientOf(t, locktest.NewServer(t).Options())}
	failsWith(t, locktest.RunChecks(t, rdb, "wakes"), "wakes", "messages do not arrive")
}

// immortal removes every TTL.
type immortal struct{ redis.UniversalClient }

func (c immortal) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	defer func() {
		for _, key := range keys {
			c.Persist(ctx, key)
		}
	}()
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Run finds keys without a TTL.
func TestRunFindsMissingTTLs(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	rdb := immortal{clientOf(t, locktest.NewServer(t).Options())}
	failsWith(t, locktest.RunChecks(t, rdb, "failed run", "every key"), "every key", "has no TTL")
}

// A server whose clock has stopped keeps a dead holder's key forever. A server whose clock is three
// times as fast grants the key too early.
func TestRunFindsClocks(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	still := locktest.NewServer(t)
	still.SetTime(time.Now())
	failed := locktest.RunChecks(t, clientOf(t, still.Options()), "dead holder")
	failsWith(t, failed, "dead holder", "the waiter does not get the key")

	fast, begin := locktest.NewServer(t), time.Now()
	again(t, time.Millisecond, func() { fast.SetTime(begin.Add(3 * time.Since(begin))) })
	failed = locktest.RunChecks(t, clientOf(t, fast.Options()), "an expired")
	failsWith(t, failed, "an expired", "the ctx of its holder has not ended")
}
