package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that returns what it receives, and reports it on heard.
func echo(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 16)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				b := make([]byte, 64)
				for {
					n, err := conn.Read(b)
					if err != nil {
						_ = conn.Close()
						return
					}
					all <- string(b[:n])
					_, _ = conn.Write(b[:n])
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return l.Addr().String(), all
}

func dialed(t *testing.T, l *link, addr string) net.Conn {
	t.Helper()
	conn, err := l.dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a line and returns the reply. It waits for 300 ms, which only a lost reply exceeds.
func ask(t *testing.T, conn net.Conn, line string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, line); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := conn.Read(b)
	return string(b[:n]), err
}

func wellOn(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if _, err := io.WriteString(conn, "well"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(b); err != nil || string(b[:n]) != "well" {
		t.Fatalf("got %q, %v", b[:n], err)
	}
}

// During a silence no data arrives, no connection is closed, and a dial does not succeed. Other
// links work.
func TestLinkSilence(t *testing.T) {
	addr, heard := echo(t)
	l := &link{}
	conn := dialed(t, l, addr)
	wellOn(t, conn)
	onItsWay := dialed(t, l, addr)
	if _, err := io.WriteString(onItsWay, "y"); err != nil {
		t.Fatal(err)
	}
	if got := <-heard + <-heard; got != "welly" {
		t.Fatalf("received %q", got)
	}
	l.silence()
	if got, err := ask(t, onItsWay, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection with a reply under way: got %q, %v", got, err)
	}
	if got, err := ask(t, conn, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
	if len(heard) > 0 {
		t.Errorf("it arrived: %q", <-heard)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if conn, err := l.dial(ctx, "tcp", addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialed: %v", err)
		_ = conn.Close()
	}
	wellOn(t, dialed(t, &link{}, addr))
}

// A trap lets the next command that names its key through, and loses the reply. Other connections,
// and new ones, work.
func TestLinkTrap(t *testing.T) {
	for _, cut := range []bool{false, true} {
		addr, heard := echo(t)
		l, sprung := &link{}, 0
		conn, other := dialed(t, l, addr), dialed(t, l, addr)
		l.trap("key", cut, func() { sprung++ })
		wellOn(t, conn)
		if _, err := ask(t, conn, "a key"); cut && !errors.Is(err, syscall.ECONNRESET) || !cut && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cut %v: %v", cut, err)
		}
		if <-heard != "well" || <-heard != "a key" || sprung != 1 {
			t.Errorf("cut %v: the command did not arrive, or the loss was reported %d times, want once", cut, sprung)
		}
		if _, err := ask(t, conn, "more"); err == nil {
			t.Error("the connection works again")
		}
		wellOn(t, other)
		wellOn(t, dialed(t, l, addr))
	}
}

// On a real server, with short leases: the measurement finds the overlap of a library that cancels
// its ctx late. holdfast has no overlap, and a lost reply costs it at least half a second.
func TestFaultsSmoke(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := scenario{name: "short", kind: faultKind, fixed: 7500 * time.Millisecond, rounds: 1, libraries: []string{"redislock+timeouts", holdfastName}}
	for _, m := range []moment{partition, loseAcquire} {
		s.points = append(s.points, point{Name: string(m), Procs: 1, Workers: 3, Keys: 1, Lease: 2 * time.Second, Moment: m})
	}
	r := report{options: options{rounds: 1}}
	if err := errors.Join(r.measure(t.Context(), srv, s, t.Output()), r.broken); err != nil {
		t.Fatal(err)
	}
	late, ok1 := r.results.get("short", string(partition), "redislock+timeouts")
	mine, ok2 := r.results.get("short", string(loseAcquire), holdfastName)
	if !ok1 || late.get(violations) == 0 || !(late.get(togetherWorst) > 0) {
		t.Errorf("the overlap was not found: %+v", late)
	}
	if !ok2 || mine.get(stuckWorst) < 0.2 || !strings.Contains(mine.said, "key") {
		t.Errorf("the lost reply was not found: %+v", mine)
	}
}
