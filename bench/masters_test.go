package main

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// Each library locks on a majority of 3 and of 5 servers, and sends its commands to all of them.
func TestQuorumScenario(t *testing.T) {
	t.Parallel()
	r := measured(t, "-scenario", "quorum")
	s, _ := scenarioNamed("quorum")
	for _, p := range s.points {
		for _, name := range quorums {
			one, ok := r.results.get(s.name, p.Name, name)
			if ok && p.Workers > 1 && one.get(ops) == 0 && name != holdfastName {
				continue // its calls have taken each other's votes for the whole short round
			}
			if !ok || one.get(ops) < 1 || one.get(redisCPU) <= 0 || p.Workers == 1 && one.get(commands) < float64(2*p.Masters)-0.5 {
				t.Errorf("%s, %s: implausible: %+v", p.Name, name, one)
			}
		}
	}
}

// The time between two grants is measured over all processes, in round trips of the network.
func TestQuorumTurns(t *testing.T) {
	newServer(t)                  // skips the test without a redis-server
	const lease = 5 * time.Second // with a shorter one a request has less than 250 ms, too little for the race detector
	s, _ := scenarioNamed("quorum-turns")
	s.fixed, s.points[0].Lease = 2*time.Second, lease
	srv, err := startMasters(t.Context(), 5, lease)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.close()
	for _, c := range s.cells(options{}) {
		r, err := run(t.Context(), srv, s, c, options{})
		if err != nil {
			t.Fatal(err)
		}
		if trips := r.get(tripsPerGrant); !(trips >= 1) || !(r.get(leastShare) >= 0) || r.get(violations) != 0 {
			t.Errorf("%s: implausible: %+v", c.library, r)
		}
	}
}

// A round trip takes the time of the network, and Close ends a connection.
func TestFar(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the connection
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_, _ = conn.Write([]byte(line))
	}()
	const trip = 100 * time.Millisecond
	conn, err := far(new(wire.Counter).Dial, trip)(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := conn.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if took := time.Since(start); line != "x\n" || err != nil || took < trip {
		t.Errorf("got %q, %v after %v", line, err, took)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write([]byte("x\n")); err == nil {
		t.Error("a closed connection can be written to")
	}
}
