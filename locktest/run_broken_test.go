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

// A Redis, or a way to it, that does not do what it should is found. Each test breaks one thing.

// failsWith fails unless the check whose name contains part fails and says want.
func failsWith(t *testing.T, failed map[string]string, part, want string) {
	t.Helper()
	for name, said := range failed {
		if strings.Contains(name, part) && strings.Contains(said, want) {
			return
		}
	}
	t.Errorf("%q has not failed with %q; failed have %q", part, want, failed)
}

func clientOf(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// again does f until the test ends.
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

// twoPrimaries is a client whose connections go to one of two servers, as behind a name that resolves to both.
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

// Two primaries behind one address make two holders, or holders that lose their keys all the time.
func TestRunFindsTwoPrimaries(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	failsWith(t, locktest.RunChecks(t, twoPrimaries(t), "one holder"), "one holder", "")
}

// Run fails its test by a subtest that says what is wrong, and cleans up; what cannot be used is refused once.
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

// A flush while somebody holds a key is seen as a second holder.
func TestRunFindsFlush(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := locktest.NewServer(t)
	rdb := clientOf(t, s.Options())
	again(t, 20*time.Millisecond, s.Forget)
	failsWith(t, locktest.RunChecks(t, rdb, "one holder", "watchdog"), "one holder", "a second holder was inside")
}

// A policy that evicts keys is a problem even while there is memory.
func TestRunFindsEviction(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-random")
	failsWith(t, locktest.RunChecks(t, s.Client(t), "doctor"), "doctor", "maxmemory-policy is allkeys-random")
}

// evicting loses the keys of each script when it has run.
type evicting struct{ redis.UniversalClient }

func (c evicting) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	defer c.Del(context.Background(), keys...)
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// A server that evicts keys is found, also if it does not tell its policy.
func TestRunFindsEvicted(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := locktest.NewServer(t)
	rdb := evicting{clientOf(t, s.Options())}
	again(t, time.Millisecond, func() { rdb.Del(context.Background(), s.Names()...) }) // keys of pipelines too
	failed := locktest.RunChecks(t, rdb, "watchdog", "failed run", "keeps the key", "permits", "a writer", "a ticket", "every key")
	failsWith(t, failed, "watchdog", "another call got the key too")
	failsWith(t, failed, "failed run", "")
	failsWith(t, failed, "permits", "times the weights exceeded the limit")
	failsWith(t, failed, "a writer", "")
	failsWith(t, failed, "a ticket", "")
	failsWith(t, failed, "keeps the key", "") // "want cooling", or a release that finds nothing any more
	failsWith(t, failed, "every key", "nothing is left")
}

// deaf listens on channels to which nobody sends.
type deaf struct{ redis.UniversalClient }

func (d deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	for i := range channels {
		channels[i] += ":elsewhere"
	}
	return d.UniversalClient.Subscribe(ctx, channels...)
}

// Messages that do not arrive are missed: a key is handed on only when somebody asks again.
func TestRunFindsSilentChannels(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	rdb := deaf{clientOf(t, locktest.NewServer(t).Options())}
	failsWith(t, locktest.RunChecks(t, rdb, "wakes"), "wakes", "messages do not arrive")
}

// immortal loses every TTL.
type immortal struct{ redis.UniversalClient }

func (c immortal) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	defer func() {
		for _, key := range keys {
			c.Persist(ctx, key)
		}
	}()
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Keys that would stay for ever are found.
func TestRunFindsMissingTTLs(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	rdb := immortal{clientOf(t, locktest.NewServer(t).Options())}
	failsWith(t, locktest.RunChecks(t, rdb, "failed run", "every key"), "every key", "has no TTL")
}

// A server whose clock stands still keeps a dead holder's key for ever, and one whose clock is three times as fast gives it away too
// early.
func TestRunFindsClocks(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	still := locktest.NewServer(t)
	still.SetTime(time.Now())
	failed := locktest.RunChecks(t, clientOf(t, still.Options()), "dead holder")
	failsWith(t, failed, "dead holder", "whoever waits does not get the key")

	fast, begin := locktest.NewServer(t), time.Now()
	again(t, time.Millisecond, func() { fast.SetTime(begin.Add(3 * time.Since(begin))) })
	failed = locktest.RunChecks(t, clientOf(t, fast.Options()), "ran out")
	failsWith(t, failed, "ran out", "the ctx of its holder has not ended")
}
