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
	stop  func()
	end   func() // stop, but keeps the data
}

// Fast are the settings of a server whose data need not survive a crash of the machine.
const Fast = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"

// DSN returns how to connect to a database as a superuser. The database postgres exists.
func (s *Server) DSN(database string) string {
	return "host=" + s.Dir + s.port + " user=postgres dbname=" + database
}

// Stop ends the server at once, and removes its data.
func (s *Server) Stop() { s.stop() }

// Crash ends the server at once and starts it again. What it has not written to its files is lost.
func (s *Server) Crash() error {
	s.end()
	return s.begin()
}

// Standby ends the server at once and starts it again as a standby, which has no primary and accepts no
// writes.
func (s *Server) Standby() error {
	s.end()
	if err := os.WriteFile(s.Dir+"/data/standby.signal", nil, 0o644); err != nil { //nolint:gosec // another user reads it
		return err
	}
	return s.begin()
}

// Need skips a test if a program of the server or one of others is missing, or fails it if CI is true.
func Need(tb testing.TB, others ...string) {
	tb.Helper()
	for _, p := range append(others, "initdb", "postgres", "pg_isready") {
		if _, err := path(p); err != nil {
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
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, stop: func() { _ = os.RemoveAll(dir) }}
	if err := s.start(settings); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(settings string) error {
	as, err := owner(s.Dir)
	if err != nil {
		return err
	}
	data := s.Dir + "/data"
	if err := run(as, s.Dir, "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--locale=C", "--encoding=UTF8", "--pgdata="+data); err != nil {
		return err
	}
	program, err := path("postgres")
	if err != nil {
		return err
	}
	args := append([]string{"-D", data, "-k", s.Dir, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"}, strings.Fields(settings)...)
	s.begin = func() error { return s.await(as, "5432", syscall.SIGQUIT, program, args...) } // SIGQUIT also stops the child processes at once
	return s.begin()
}

// await starts a program, and waits until it accepts connections.
func (s *Server) await(as *syscall.SysProcAttr, port string, by syscall.Signal, program string, args ...string) error {
	said, err := s.run(as, by, program, args...)
	for deadline := time.Now().Add(startTime); err == nil; time.Sleep(50 * time.Millisecond) {
		ready := run(as, s.Dir, "pg_isready", "--host="+s.Dir, "--port="+port, "--quiet")
		if ready == nil {
			return nil
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%s: %w\n%s", program, ready, said)
		}
	}
	return err
}

// StartPooler starts PgBouncer in transaction mode in front of s, from Debian's package pgbouncer. Its
// DSN connects to the databases of s.
func (s *Server) StartPooler() (*Server, error) {
	dir, err := os.MkdirTemp("", "pgbouncer")
	if err != nil {
		return nil, err
	}
	p := &Server{Dir: dir, port: " port=6432", stop: func() { _ = os.RemoveAll(dir) }}
	if err := p.startPooler(s.Dir); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (s *Server) startPooler(of string) error {
	as, err := owner(s.Dir)
	if err != nil {
		return err
	}
	program, err := path("pgbouncer")
	if err != nil {
		return err
	}
	config := filepath.Join(s.Dir, "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
`, of, s.Dir), 0o644); err != nil { //nolint:gosec // another user reads it
		return err
	}
	return s.await(as, "6432", syscall.SIGKILL, program, "-q", config)
}

// run starts a program, which stop then ends with a signal.
func (s *Server) run(as *syscall.SysProcAttr, by syscall.Signal, program string, args ...string) (said *bytes.Buffer, err error) {
	said = new(bytes.Buffer)
	cmd := exec.Command(program, args...) //nolint:noctx // it lives until Stop
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = as, s.Dir, said, said
	if err := cmd.Start(); err != nil {
		return said, err
	}
	alive, guard, err := watch(cmd.Process.Pid, by, s.Dir)
	s.end = func() {
		_ = cmd.Process.Signal(by)
		_ = cmd.Wait()
		if guard != nil {
			_ = guard.Process.Kill() // before its pipe closes; otherwise it would kill a process id that may belong to another process by now
			_ = alive.Close()
			_ = guard.Wait()
		}
	}
	s.stop = func() {
		s.end()
		_ = os.RemoveAll(s.Dir)
	}
	return said, err
}

func run(as *syscall.SysProcAttr, dir, program string, args ...string) error {
	program, err := path(program)
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

// owner makes dir the property of the user that the server runs as, if the tests run as root, which
// the server refuses. That is the user postgres, or the system user nobody.
func owner(dir string) (*syscall.SysProcAttr, error) {
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

// path returns a program of the folder POSTGRES_BIN. Without one it also searches the folders of Debian, and prefers
// the newest version.
func path(program string) (string, error) {
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
