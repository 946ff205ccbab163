package redistest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server starts empty, can be paused, resumed, stopped and started again, and ends with its test.
func TestReal(t *testing.T) {
	var addr string
	t.Run("life", func(t *testing.T) {
		s := redistest.Real(t)
		addr = s.Addr()
		ctx := t.Context()
		c := s.Client(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 50*time.Millisecond })
		check(t, s.Client(t).Set(ctx, "k", "v", 0).Err())
		check(t, s.Client(t).Do(ctx, "DEBUG", "SLEEP", "0").Err())

		s.Pause()
		if err := c.Get(ctx, "k").Err(); !os.IsTimeout(err) {
			t.Errorf("a paused server replied: %v", err)
		}
		s.Resume()
		if err := s.Client(t).Get(ctx, "k").Err(); err != nil {
			t.Errorf("a resumed server: %v", err)
		}
		s.Stop()
		if err := c.Get(ctx, "k").Err(); err == nil {
			t.Error("a stopped server replied")
		}
		s.Start()
		if n, err := s.Client(t).DBSize(ctx).Result(); n != 0 || err != nil {
			t.Errorf("after a restart: %d keys, %v; want none", n, err)
		}
		s.Pause() // the cleanup must also stop a paused server
	})
	if addr == "" {
		t.Skip(redistest.Missing + " see the test inside")
	}
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("the server outlived its test")
	}
}

// Arguments are passed to the server.
func TestRealArgs(t *testing.T) {
	c := redistest.Real(t, "--maxmemory", "123456789").Client(t)
	got, err := c.ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "123456789" {
		t.Errorf("maxmemory is %q, %v", got["maxmemory"], err)
	}
}

// Without the program a test is skipped, with the prefix Missing; with CI=true it fails.
func TestRealMissing(t *testing.T) {
	t.Setenv("REDIS_SERVER", "redis-server-that-is-not-there")
	for ci, want := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		rec := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			redistest.Real(rec)
		}()
		<-done
		if rec.was != want {
			t.Errorf("CI=%q: the test %s, want %s", ci, rec.was, want)
		}
		if !strings.HasPrefix(rec.text, redistest.Missing) {
			t.Errorf("CI=%q: the reason is %q, want it to begin with %q", ci, rec.text, redistest.Missing)
		}
	}
}

// With HOLDFAST_TEST_ACL a server has the user with the fewest rights, unless its test or one around
// it needs more.
func TestMoreRights(t *testing.T) {
	t.Setenv("HOLDFAST_TEST_ACL", "1")
	users := func(want ...string) func(*testing.T) {
		return func(t *testing.T) {
			got, err := redistest.Real(t).Client(t).Do(t.Context(), "ACL", "USERS").StringSlice()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("the users are %q, %v; want %q", got, err, want)
			}
		}
	}
	t.Run("fewest", users("default", redistest.LeastUser))
	t.Run("more", func(t *testing.T) {
		redistest.MoreRights(t)
		t.Run("inside", users("default"))
		users("default")(t)
	})
	t.Run("more again", users("default", redistest.LeastUser))
}

// A server does not outlive a test process that was killed.
func TestRealGuard(t *testing.T) {
	if os.Getenv("REDISTEST_VICTIM") != "" {
		s := redistest.Real(t)
		os.Stdout.WriteString(s.Addr() + "\n")
		select {}
	}
	self := redistest.Real(t) // skips without a server
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRealGuard$")
	cmd.Env = append(os.Environ(), "REDISTEST_VICTIM=1")
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	addr := make([]byte, len(self.Addr()))
	if _, err = out.Read(addr); err != nil {
		t.Error(err)
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	c := redis.NewClient(&redis.Options{Addr: string(addr), MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for c.Ping(ctx).Err() == nil {
	}
	if ctx.Err() != nil {
		t.Errorf("the server on %s outlived its test process", addr)
	}
}

// In a bubble, keys expire by the clock of the bubble, and nothing is left behind.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		c := m.Client(t)
		ctx := t.Context()
		check(t, c.Set(ctx, "k", "v", time.Hour).Err())
		time.Sleep(time.Hour - time.Nanosecond)
		if n := c.Exists(ctx, "k").Val(); n != 1 {
			t.Error("the key expired early")
		}
		time.Sleep(time.Nanosecond)
		if n := c.Exists(ctx, "k").Val(); n != 0 {
			t.Error("the key did not expire")
		}
	})
}

// Counter counts commands by name and scripts by their title. It does not count the handshake.
func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n redistest.Counter
		c := redistest.Bubble(t).Client(t, func(o *redis.Options) { o.Dialer = n.Dial(o.Dialer) })
		ctx := t.Context()
		acquire := redis.NewScript("-- acquire.lua: KEYS[1]=lock\nreturn 1")
		check(t, acquire.Run(ctx, c, []string{"k"}).Err())
		if got, want := n.Commands(), []string{"acquire", "acquire"}; !slices.Equal(got, want) {
			t.Errorf("a cold script: %q, want %q (EVALSHA, EVAL)", got, want)
		}
		n.Reset()
		check(t, acquire.Run(ctx, c, []string{"k"}).Err())
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", "b", 0)
			acquire.EvalSha(ctx, p, []string{"k"})
			return nil
		})
		check(t, err)
		if got, want := n.String(), "acquire 2, set 1"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		if got := n.Count("acquire"); got != 2 {
			t.Errorf("acquire was sent %d times, want 2", got)
		}
	})
}

// recorder is a test that records how it ended.
type recorder struct {
	testing.TB
	was, text string
}

func (r *recorder) Helper()                          {}
func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", fmt.Sprintf(format, args...)) }

func (r *recorder) end(was, text string) {
	r.was, r.text = was, text
	runtime.Goexit()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
