//go:build unix

package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the primary of a [Trio].
const MasterName = "trio"

const (
	quorum      = 2
	settleLimit = 90 * time.Second // for a topology to become ready; after a pause a sentinel does nothing for 30 s (TILT)
	mustTime    = 10 * time.Second // time limit of a command on a running server
)

// Trio is a primary with two replicas and three sentinels. The sentinels replace a primary that
// does not reply for a second. Only the goroutine of the test may call the methods.
type Trio struct {
	tb        testing.TB
	servers   []*Server
	sentinels []*Server
}

// Sentinel starts a Trio on free ports of the loopback interface, and stops it when the test ends.
// It returns when all processes know each other and both replicas are in sync. args are passed to
// the three servers. It skips or fails like [Real].
func Sentinel(tb testing.TB, args ...string) *Trio {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	s := &Trio{tb: tb}
	master := Real(tb, args...)
	s.servers = append(s.servers, master)
	for range 2 {
		s.servers = append(s.servers, Real(tb, append([]string{"--replicaof", fmt.Sprint("127.0.0.1 ", master.port)}, args...)...))
	}
	for range 3 {
		s.sentinels = append(s.sentinels, sentinel(tb, master))
	}
	settle(tb, "the trio", s.ready)
	return s
}

// Options returns fresh options for a client that follows the primary.
func (s *Trio) Options() *redis.FailoverOptions {
	o := &redis.FailoverOptions{MasterName: MasterName}
	for _, w := range s.sentinels {
		o.SentinelAddrs = append(o.SentinelAddrs, w.Addr())
	}
	return o
}

// Client returns a client that follows the primary and is closed when the test ends. Each edit may
// change the options before.
func (s *Trio) Client(tb testing.TB, edit ...func(*redis.FailoverOptions)) *redis.Client {
	tb.Helper()
	o := s.Options()
	for _, e := range edit {
		e(o)
	}
	c := redis.NewFailoverClient(o)
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// Master returns the primary that the sentinels name. Stop kills it with SIGKILL. Pause and Resume
// stop and continue it.
func (s *Trio) Master() *Server {
	s.tb.Helper()
	addr := s.masterAddr(s.tb.Context())
	for _, server := range s.servers {
		if server.Addr() == addr {
			return server
		}
	}
	s.tb.Fatalf("the sentinels name an unknown master: %q", addr)
	return nil
}

// Replicas returns the servers that are not the primary.
func (s *Trio) Replicas() []*Server {
	s.tb.Helper()
	master := s.Master()
	var others []*Server
	for _, server := range s.servers {
		if server != master {
			others = append(others, server)
		}
	}
	return others
}

// Failover waits until the sentinels name a primary other than old, and that server reports the
// role of a master. It returns the new primary.
func (s *Trio) Failover(old *Server) *Server {
	s.tb.Helper()
	settle(s.tb, "the failover", func(ctx context.Context) error {
		addr := s.masterAddr(ctx)
		if addr == old.Addr() || addr == "" {
			return fmt.Errorf("the master is %q", addr)
		}
		return ask(ctx, addr, func(ctx context.Context, c *redis.Client) error {
			return says(ctx, c, "replication", "role:master")
		})
	})
	return s.Master()
}

// Plan makes a sentinel replace the working primary, as for maintenance. It returns when a replica
// is the primary. The old primary accepts writes for some seconds more.
func (s *Trio) Plan() {
	s.tb.Helper()
	old := s.Master()
	settle(s.tb, "the planned failover", func(ctx context.Context) error {
		return ask(ctx, s.sentinels[0].Addr(), func(ctx context.Context, c *redis.Client) error {
			return sentinelSays(ctx, c, "FAILOVER", MasterName).Err()
		})
	})
	s.Failover(old)
}

// masterAddr returns the address of the primary that the first sentinel with a reply names.
func (s *Trio) masterAddr(ctx context.Context) (addr string) {
	for _, w := range s.sentinels {
		err := ask(ctx, w.Addr(), func(ctx context.Context, c *redis.Client) error {
			parts, err := sentinelSays(ctx, c, "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
			if err == nil && len(parts) == 2 {
				addr = net.JoinHostPort(parts[0], parts[1])
			}
			return err
		})
		if err == nil && addr != "" {
			return addr
		}
	}
	return ""
}

func (s *Trio) ready(ctx context.Context) error {
	for _, replica := range s.servers[1:] {
		if err := ask(ctx, replica.Addr(), func(ctx context.Context, c *redis.Client) error {
			return says(ctx, c, "replication", "master_link_status:up")
		}); err != nil {
			return err
		}
	}
	for _, w := range s.sentinels {
		if err := ask(ctx, w.Addr(), func(ctx context.Context, c *redis.Client) error {
			return says(ctx, c, "sentinel", "status=ok", "slaves=2,sentinels=3")
		}); err != nil {
			return err
		}
		if err := ask(ctx, w.Addr(), func(ctx context.Context, c *redis.Client) error {
			return sentinelSays(ctx, c, "CKQUORUM", MasterName).Err()
		}); err != nil {
			return err
		}
	}
	return nil
}

func sentinelSays(ctx context.Context, c *redis.Client, args ...any) *redis.Cmd {
	return c.Do(ctx, append([]any{"SENTINEL"}, args...)...)
}

// sentinel starts a sentinel that watches master. It uses the same program; the configuration must
// be a file.
func sentinel(tb testing.TB, master *Server) *Server {
	tb.Helper()
	for try := 1; ; try++ {
		s := &Server{tb: tb, path: master.path, port: freePort(tb)}
		dir := tb.TempDir()
		conf := filepath.Join(dir, "sentinel.conf")
		text := strings.Join([]string{
			"bind 127.0.0.1", fmt.Sprint("port ", s.port), "dir " + dir,
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", MasterName, master.port, quorum),
			"sentinel down-after-milliseconds " + MasterName + " 1000",
			"sentinel failover-timeout " + MasterName + " 3000", "",
		}, "\n")
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(s.Stop)
		s.cmd = exec.Command(s.path, conf, "--sentinel") //nolint:noctx // it lives until Stop
		s.cmd.Stdout = io.Discard
		if err := s.cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		s.watch()
		if s.answers() {
			return s
		}
		s.Stop()
		if try == startTries {
			tb.Fatalf("%s --sentinel does not start", s.path)
		}
	}
}

// answers waits until the process replies. It returns false if it does not within some seconds,
// because another process has its port.
func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for {
		err := ask(ctx, s.Addr(), func(ctx context.Context, c *redis.Client) error {
			return sentinelSays(ctx, c, "MYID").Err()
		})
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ask calls do with a client of addr, for at most half a second, because the server may be paused.
func ask(ctx context.Context, addr string, do func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DialTimeout: 500 * time.Millisecond, DisableIdentity: true,
	})
	defer func() { _ = c.Close() }()
	return do(ctx, c)
}

// says checks that a section of INFO contains each of parts.
func says(ctx context.Context, c *redis.Client, section string, parts ...string) error {
	info, err := c.Info(ctx, section).Result()
	if err == nil && !contains(info, parts...) {
		err = fmt.Errorf("%s: not all of %q in INFO %s:\n%s", c.Options().Addr, parts, section, info)
	}
	return err
}

func contains(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// settle polls until ok returns nil.
func settle(tb testing.TB, what string, ok func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), settleLimit)
	defer cancel()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			tb.Fatalf("%s is not ready after %v: %v", what, settleLimit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
