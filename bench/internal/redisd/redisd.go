// Package redisd runs a redis-server for a benchmark.
package redisd

import (
	"net"
	"os"
	"os/exec"
	"runtime"
)

// Server is a redis-server process without persistence, on a free port of the loopback interface.
type Server struct {
	Addr  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a server with args. It does not wait until the server accepts connections. Stop ends
// the server. On Linux the server also ends when this process dies.
func Start(args ...string) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-*")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir, "--loglevel", "warning"}, args...)
	s := &Server{Addr: addr, cmd: exec.Command(path, args...), ended: make(chan struct{})} //nolint:noctx // it outlives a canceled run: Stop ends it
	dieWithParent(s.cmd)
	started := make(chan error)
	go func() { // ends with the server, which Stop ends
		runtime.LockOSThread() // the kernel's "parent" in dieWithParent is the thread that started it
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
		}
		_ = os.RemoveAll(dir)
		close(s.ended)
	}()
	return s, <-started
}

// Stop kills the server, and waits until its process has ended.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill() // an error means that it has ended already
	<-s.ended
}

// FreeAddr returns an address of the loopback interface on which no process listens now.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
