//go:build unix

// Package pgtest starts a PostgreSQL server for tests, from the programs of Debian's packages.
package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const startTime = time.Minute

// Server is a running server.
type Server struct {
	Dir   string // of its socket
	port  string
	begin func() error
	by    syscall.Signal // ends it at once, together with its child processes
	end   func(syscall.Signal)
}

// Fast are the settings of a server whose data need not survive a crash of the machine.
const Fast = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"

// DSN returns how to connect to a database as a superuser. The database postgres exists.
func (s *Server) DSN(database string) string {
	return "host=" + s.Dir + s.port + " user=postgres dbname=" + database
}

// Stop ends the server at once, and removes its data.
func (s *Server) Stop() {
	if s.end != nil {
		s.end(s.by)
	}
	_ = os.RemoveAll(s.Dir)
}

// Crash ends the server at once and starts it again. What it has not written to its files is lost.
func (s *Server) Crash() error {
	s.end(s.by)
	return s.begin()
}

// Standby ends the server at once and starts it again as a standby, which has no primary and accepts no
// writes.
func (s *Server) Standby() error {
	s.end(s.by)
	if err := os.WriteFile(s.Dir+"/data/standby.signal", nil, 0o644); err != nil { //nolint:gosec // another user reads it
		return err
	}
	return s.begin()
}

// Kill kills the server, and waits until its child processes have ended by themselves.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Begin starts a killed server again.
func (s *Server) Begin() error { return s.begin() }

// Need skips a test if a program of the server or one of others is missing, or fails it if CI is true.
func Need(tb testing.TB, others ...string) {
	tb.Helper()
	NeedOnly(tb, append(others, "initdb", "postgres", "pg_isready")...)
}

// NeedOnly is Need for other programs alone.
func NeedOnly(tb testing.TB, programs ...string) {
	tb.Helper()
	for _, p := range programs {
		if _, err := Path(p); err != nil {
			if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
				tb.Fatalf("%v, and CI is true", err)
			}
			tb.Skip(err)
		}
	}
}

// Start starts a server on a socket in a temporary folder, with settings as -c NAME=VALUE. It does not
// outlive the tests, even if they are killed.
func Start(settings string) (*Server, error) {
	return start("pg", syscall.SIGQUIT, func(s *Server, as *syscall.SysProcAttr) error {
		if err := run(as, s.Dir, "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--locale=C", "--encoding=UTF8", "--pgdata="+s.data()); err != nil {
			return err
		}
		return s.start(as, settings)
	})
}

// StartStandby starts a standby of a server, with settings as Start.
func StartStandby(of *Server, settings string) (*Server, error) {
	return start("pg", syscall.SIGQUIT, func(s *Server, as *syscall.SysProcAttr) error {
		if err := s.copy(as, of); err != nil {
			return err
		}
		return s.start(as, settings)
	})
}

// Follow makes a killed server a standby of another one. What only it had is lost.
func (s *Server) Follow(of *Server) error {
	as, err := Owner(s.Dir)
	if err == nil {
		err = os.RemoveAll(s.data())
	}
	if err == nil {
		err = s.copy(as, of)
	}
	if err != nil {
		return err
	}
	return s.begin()
}

func (s *Server) data() string { return s.Dir + "/data" }

func (s *Server) copy(as *syscall.SysProcAttr, of *Server) error {
	return run(as, s.Dir, "pg_basebackup", "--dbname="+of.DSN("postgres"), "--pgdata="+s.data(), "--checkpoint=fast", "--no-sync", "--write-recovery-conf")
}

// start starts a server in a new folder.
func start(name string, by syscall.Signal, begin func(*Server, *syscall.SysProcAttr) error) (*Server, error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, by: by}
	as, err := Owner(dir)
	if err == nil {
		err = begin(s, as)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(as *syscall.SysProcAttr, settings string) error {
	program, err := Path("postgres")
	if err != nil {
		return err
	}
	args := append([]string{"-D", s.data(), "-k", s.Dir, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"}, strings.Fields(settings)...)
	s.begin = func() error { return s.await(as, "5432", program, args...) }
	return s.begin()
}

// await starts a program, and waits until it accepts connections.
func (s *Server) await(as *syscall.SysProcAttr, port, program string, args ...string) (err error) {
	var said bytes.Buffer
	cmd := exec.Command(program, args...) //nolint:noctx // it lives until Stop
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = as, s.Dir, &said, &said
	if s.end, err = Begin(cmd, s.by); err != nil {
		return err
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		err := run(as, s.Dir, "pg_isready", "--host="+s.Dir, "--port="+port, "--quiet")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			s.end(s.by)
			return fmt.Errorf("%s: %w\n%s", program, err, &said)
		}
	}
}

// StartPooler starts PgBouncer in transaction mode in front of s, from Debian's package pgbouncer, with
// that many connections to each database. Its DSN connects to the databases of s.
func (s *Server) StartPooler(connections int) (*Server, error) {
	return start("pgbouncer", syscall.SIGKILL, func(p *Server, as *syscall.SysProcAttr) error {
		p.port = " port=6432"
		program, err := Path("pgbouncer")
		if err != nil {
			return err
		}
		config := filepath.Join(p.Dir, "config")
		if err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 1000
`, s.Dir, p.Dir, connections), 0o644); err != nil { //nolint:gosec // another user reads it
			return err
		}
		return p.await(as, "6432", program, "-q", config)
	})
}

// Begin starts a server in the folder cmd.Dir. end sends a signal that ends it, and waits; a second call does
// nothing. If the tests are killed, the signal by ends it, and its folder is removed.
func Begin(cmd *exec.Cmd, by syscall.Signal) (end func(syscall.Signal), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	alive, guard, err := watch(cmd.Process.Pid, by, cmd.Dir)
	ended := false
	end = func(sig syscall.Signal) {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait() // also for the child processes, which have its output
		if guard != nil {
			_ = guard.Process.Kill() // before its pipe closes; otherwise it would kill a process id that may belong to another process by now
			_ = alive.Close()
			_ = guard.Wait()
		}
	}
	if err != nil {
		end(by)
	}
	return end, err
}

func run(as *syscall.SysProcAttr, dir, program string, args ...string) error {
	program, err := Path(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.SysProcAttr, cmd.Dir = as, dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// watch starts a process that stops the server and removes its folder if the test process dies
// first, for example at the timeout of go test.
func watch(pid int, by syscall.Signal, dir string) (io.Closer, *exec.Cmd, error) {
	const script = `read _; kill -"$1" "$2"; for i in 1 2 3 4 5 6 7 8 9; do sleep 1; rm -rf "$3" && exit; done` // the children of the server still write
	guard := exec.Command("sh", "-c", script, "sh", strconv.Itoa(int(by)), strconv.Itoa(pid), dir)              //nolint:noctx // it lives until Stop
	in, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, nil, err
	}
	return in, guard, nil
}

// Owner makes dir the property of the user that the server runs as, if the tests run as root, which
// the server refuses. That is the user postgres, or the system user nobody.
func Owner(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, fmt.Errorf("no user to run a server as")
}

// Path returns a program of the folder POSTGRES_BIN. Without one it also searches the folders of Debian, and prefers
// the newest version.
func Path(program string) (string, error) {
	if found, err := exec.LookPath(filepath.Join(os.Getenv("POSTGRES_BIN"), program)); err == nil && filepath.IsAbs(found) {
		return found, nil
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program); len(found) > 0 {
		return slices.Max(found), nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + program)
}
