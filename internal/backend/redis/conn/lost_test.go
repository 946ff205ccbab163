package conn_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// A reply arrives at the same moment at which its read is ended, because the server has answered
// another connection. Either the read returns the reply, and the connection stays usable, or the
// read returns a timeout and the reply is dropped.
// Shows: R6
func TestLostReplyAtTheCut(t *testing.T) {
	testlevel.InMemory(t)
	const cut = 220 * time.Millisecond // 200 ms until the server is asked, and 20 ms after its answer
	for early, want := range map[time.Duration]error{time.Microsecond: nil, 0: nil, -time.Microsecond: os.ErrDeadlineExceeded} {
		t.Run(early.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reply := []byte("+OK\r\n")
				serve := func(conn net.Conn, asked time.Duration) {
					b := make([]byte, 64)
					for n := 0; ; n++ {
						if _, err := conn.Read(b); err != nil {
							return
						}
						if n == 1 {
							time.Sleep(asked)
						}
						if _, err := conn.Write(reply); err != nil {
							return
						}
					}
				}
				wait, dials := cut-early, 0
				dial := conn.EndWith(t.Context(), func(context.Context, string, string) (net.Conn, error) {
					dials++
					client, server := net.Pipe()
					go serve(server, wait)
					return client, nil
				}, nil)
				conn, err := dial(t.Context(), "tcp", "server")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				exchange := func() error {
					_ = conn.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := conn.Write([]byte("*1\r\n$4\r\nTEST\r\n")); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, 64)
					n, err := conn.Read(b)
					if got := string(b[:n]); err == nil && got != string(reply) || err != nil && n > 0 {
						t.Errorf("read %q, %v", got, err)
					}
					return err
				}
				if err := exchange(); err != nil { // the reply to HELLO
					t.Fatal(err)
				}
				start := time.Now()
				err = exchange()
				if early != 0 && !errors.Is(err, want) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v after %v, want %v", err, time.Since(start), want)
				}
				time.Sleep(time.Second)
				if err == nil {
					if err := exchange(); err != nil {
						t.Errorf("the connection whose reply was used: %v", err)
					}
				}
				if dials != 2 {
					t.Errorf("%d dials", dials)
				}
			})
		})
	}
}
