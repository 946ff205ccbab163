//go:build unix

package redistest

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Missing is the prefix of the reason of a test that was skipped because there is no redis-server.
const Missing = "redis-server:"

const startTries = 3 // another process may take the free port before the server does

// Server is a redis-server process of one test, without persistence. Only the goroutine of the test
// may call the methods.
type Server struct {
	tb    testing.TB
	path  string
	args  []string
	port  int
	cmd   *exec.Cmd
	guard *exec.Cmd   // kills the server if the test's process dies
	alive io.Closer   // guard waits until this is closed
	least atomic.Bool // Lockers have the least rights, see [LeastUser]
}

// Real starts a server on a free port of the loopback interface and stops it when the test ends.
// The program is redis-server, or the one in the environment variable REDIS_SERVER. args follow the
// usual arguments, which are no persistence and DEBUG allowed. Without the program the test is
// skipped, or fails if CI is true.
func Real(tb testing.TB, args ...string) *Server {
	tb.Helper()
	name := os.Getenv("REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			tb.Fatalf("%s %v, and CI is true", Missing, err)
		}
		tb.Skipf("%s %v", Missing, err)
	}
	s := &Server{tb: tb, path: path, args: args}
	tb.Cleanup(s.Stop)
	for try := 1; ; try++ {
		s.port = freePort(tb)
		out, ok := s.start()
		if ok {
			return s
		}
		if try == startTries {
			tb.Fatalf("%s does not start:\n%s", path, out)
		}
	}
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Options returns fresh options for a client of s. They have a Dialer, so that a test can wrap it.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Addr: s.Addr(), Dialer: s.dial}
}

// Client returns a client of s that is closed when the test ends. Each edit may change the options
// before.
func (s *Server) Client(tb testing.TB, edit ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return client(tb, s.Options(), edit)
}

// Pause stops the process with SIGSTOP: Redis does not reply, and its connections stay open.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// Start starts the server again, empty and on the same port, after Stop.
func (s *Server) Start() {
	s.tb.Helper()
	if out, ok := s.start(); !ok {
		s.tb.Fatalf("%s does not start again:\n%s", s.path, out)
	}
}

// Stop kills the server, and waits until the process has ended. All data is lost.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	s.denied()
	_ = s.cmd.Process.Kill() // also a paused process; an error means that it has ended already
	_ = s.cmd.Wait()
	_ = s.guard.Process.Kill() // before its pipe closes, otherwise it would kill a process id that is free again
	_ = s.alive.Close()
	_ = s.guard.Wait()
	s.cmd = nil
}

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("%s: %v: %v", s.path, sig, err)
	}
}

// start starts the process and returns when it replies. If it does not, said is its output.
func (s *Server) start() (said string, ok bool) {
	s.tb.Helper()
	s.cmd = exec.Command(s.path, append([]string{ //nolint:noctx // it lives until Stop
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--save", "", "--appendonly", "no",
		"--enable-debug-command", "yes", "--dir", s.tb.TempDir(),
	}, s.args...)...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.watch()
	said, ok = ready(out)
	if !ok {
		s.Stop()
		return said, false
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	c := redis.NewClient(s.Options())
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = c.Ping(ctx).Err()
	if err == nil {
		err = s.addUser(ctx, c)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "NOAUTH") {
		s.Stop()
		return said + err.Error(), false
	}
	return said, true
}

// watch starts a process that kills the server if the test's process dies before Stop, as it does
// at go test's timeout.
func (s *Server) watch() {
	s.tb.Helper()
	s.guard = exec.Command("sh", "-c", "read _; kill -9 "+strconv.Itoa(s.cmd.Process.Pid)) //nolint:noctx // as above
	in, err := s.guard.StdinPipe()
	if err == nil {
		err = s.guard.Start()
	}
	if err != nil {
		_ = s.cmd.Process.Kill()
		s.tb.Fatal(err)
	}
	s.alive = in
}

// ready reads the output of the server until it accepts connections. It returns false if the server
// ends before that.
func ready(out io.Reader) (said string, ok bool) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(said, "Ready to accept connections") {
			return said, true
		}
	}
	return said, false
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port //nolint:errcheck // of a TCP listener
}
