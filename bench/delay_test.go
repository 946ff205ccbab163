package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func newProxy(t *testing.T, addr string, roundTrip time.Duration) *proxy {
	t.Helper()
	p, err := startProxy(addr, roundTrip)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newEcho starts a server that returns what it receives, and a proxy before it.
func newEcho(t *testing.T, by time.Duration) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection of the proxy
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	p := newProxy(t, l.Addr().String(), by)
	t.Cleanup(func() {
		p.close()
		_ = l.Close()
	})
	return p
}

// On each of several connections a reply arrives complete, and not before the delay is over.
func TestProxyDelays(t *testing.T) {
	const by = 20 * time.Millisecond
	p := newEcho(t, by)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			conn, err := dialer.DialContext(t.Context(), "tcp", p.addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for range 5 {
				sent, got := make([]byte, 100), make([]byte, 100)
				for i := range sent {
					sent[i] = byte(rand.Int())
				}
				start := time.Now()
				if _, err := conn.Write(sent); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("the reply is wrong or missing: %v", err)
					return
				}
				if took := time.Since(start); took < by {
					t.Errorf("a reply after %v", took)
				}
			}
		})
	}
	all.Wait()
}

// The proxy delays the messages of a connection in parallel, so 200 messages take much less than
// 200 delays. Their order stays.
func TestProxyInFlight(t *testing.T) {
	const (
		by       = 50 * time.Millisecond
		messages = 200
	)
	p := newEcho(t, by)
	conn, err := dialer.DialContext(t.Context(), "tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	go func() { // ends with the connection
		for i := range messages {
			_, _ = conn.Write([]byte{byte(i)})
			time.Sleep(10 * time.Microsecond) // makes the proxy read many chunks and not one
		}
	}()
	got := make([]byte, messages)
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != byte(i) {
			t.Fatalf("message %d arrived as number %d", b, i)
		}
	}
	if took := time.Since(start); took < by || took > messages*by/10 {
		t.Errorf("%d messages took %v, one after another they would take %v", messages, took, messages*by)
	}
}

// A long stream arrives complete and in order: the proxy delays its parts and not only its end.
func TestProxyStreams(t *testing.T) {
	p := newEcho(t, time.Millisecond)
	conn, err := dialer.DialContext(t.Context(), "tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	go func() { _, _ = conn.Write(sent) }() // ends with the connection
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the stream has changed: %v", err)
	}
}

// The proxy passes on the end of either side, after all data that was sent before.
func TestProxyEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newProxy(t, l.Addr().String(), time.Millisecond)
	defer p.close()
	for _, serverFirst := range []bool{true, false} {
		client, err := dialer.DialContext(t.Context(), "tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		from, to := server, client
		if !serverFirst {
			from, to = client, server
		}
		if _, err := from.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		_ = from.Close()
		if got, err := io.ReadAll(to); err != nil || string(got) != "last words" {
			t.Errorf("server first %v: got %q, %v", serverFirst, got, err)
		}
		_ = to.Close()
	}
}

// close ends the connection of a client that waits for a reply, also if the reply is delayed.
func TestProxyClose(t *testing.T) {
	p := newEcho(t, 0)
	second := newProxy(t, p.addr(), 50*time.Millisecond)
	conn, err := dialer.DialContext(t.Context(), "tcp", second.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { // ends with the connection
		defer close(read)
		_, _ = io.Copy(io.Discard, conn) // the proxy may reset the connection
	}()
	time.Sleep(10 * time.Millisecond) // the proxy now delays the message
	second.close()
	<-read
}

// The scenarios with a delay run only if -scenario names them, one by one or together.
func TestDelaySelected(t *testing.T) {
	for list, want := range map[string][]string{
		"delay":             {"delay-0.1ms", "delay-1ms", "delay-10ms"},
		"delay-1ms":         {"delay-1ms"},
		"seq,delay":         {"seq", "delay-0.1ms", "delay-1ms", "delay-10ms"},
		"delay-10ms, delay": {"delay-0.1ms", "delay-1ms", "delay-10ms"},
	} {
		o, err := parseOptions([]string{"-scenario", list}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range o.scenarios {
			got = append(got, s.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v", list, got)
		}
	}
}

// With the proxy no operation is faster than the network. The table shows the measured round trip.
func TestDelayScenario(t *testing.T) {
	newServer(t)
	var out strings.Builder
	if err := bench(t.Context(), []string{"-scenario", "delay-1ms", "-only", "floor,holdfast", "-for", "200ms", "-rounds", "1", "-json"}, &out, t.Output()); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 12 {
		t.Fatalf("%d lines, want 4 points of 3 libraries", len(lines))
	}
	unbatched := 0
	for _, line := range lines {
		var r result
		figures := struct {
			Ping    float64 `json:"ping_us"`
			PairP50 float64 `json:"pair_p50_us"`
			PairP99 float64 `json:"pair_p99_us"`
		}{}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(line), &figures); err != nil {
			t.Fatal(err)
		}
		if r.P50US < 980 || figures.PairP50 < 1960 || figures.Ping < 1000 { // a quantile is off by at most 1.6 %
			t.Errorf("faster than the network: %s", line)
		}
		if figures.PairP99 < figures.PairP50 || figures.PairP50 < r.P50US {
			t.Errorf("implausible: %s", line)
		}
		if r.Library == unbatchedName {
			unbatched++
		}
	}
	if unbatched != 4 {
		t.Errorf("%d lines of %s, want 4", unbatched, unbatchedName)
	}
	s, _ := scenarioNamed("delay-1ms")
	if head := strings.Join(sheetOf(s, nil).head, "|"); !strings.HasPrefix(head, "|library|ping|ops/s|pair p50|pair p99|") {
		t.Errorf("columns %s", head)
	}
}
