//go:build unix

package postgres_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/postgres"
)

// A process that is stopped between the read and the write of a row, for longer than a purge takes, gets
// no smaller token than a hold meanwhile. One that goes on in time gets no key that another one has.
// Shows: I1, I3
func TestStoppedBetweenReadAndWrite(t *testing.T) {
	testlevel.Full(t)
	for name, long := range map[string]bool{"purged meanwhile": true, "held meanwhile": false} {
		t.Run(name, func(t *testing.T) {
			pool := database(t)
			other := world(t, pool, postgres.Options{}).Backend("other")
			defer other.Close()
			r := acquisition(other, "k", "other")
			release := func(token int64) {
				t.Helper()
				if reply, err := other.Release(t.Context(), backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: token, Retention: time.Hour, Plain: true}); err != nil || !reply.Released {
					t.Fatalf("Release returns %+v, %v", reply, err)
				}
			}
			if !long { // the row exists
				release(tokenOf(t, other, r))
			}
			p, said := process.Listen[backend.AcquireReply](t, pool.Config().ConnString())
			<-said // it has read the row
			p.Pause()
			token := tokenOf(t, other, r)
			if long {
				release(token)
				run(t, pool, `UPDATE holdfast_keys SET due = 0 WHERE name = 'x:k'`) // as if the time had come
				if n, err := postgres.Purge(t.Context(), pool, postgres.Options{}); n != 1 || err != nil {
					t.Fatalf("Purge returns %d, %v", n, err)
				}
				run(t, pool, `SELECT pg_sleep(1.1)`) // since the read; longer than rows.WriteTime
			}
			p.Tell("go on")
			p.Resume()
			reply := <-said
			switch {
			case long && (reply.Outcome != backend.OutcomeGranted || reply.Token <= token):
				t.Errorf("after a hold with token %d: %+v", token, reply)
			case !long && reply.Outcome != backend.OutcomeBusy:
				t.Errorf("while the key is held: %+v", reply)
			}
		})
	}
}

func acquisition(b backend.Backend, name, id string) backend.AcquireRequest {
	key := b.Key(backend.KindExclusive, name)
	return backend.AcquireRequest{Key: &key, ID: id, Lease: time.Minute, Retention: time.Hour, First: true, Timeout: time.Second}
}

// tokenOf returns the token of a grant.
func tokenOf(t *testing.T, b backend.Backend, r backend.AcquireRequest) int64 {
	t.Helper()
	reply, err := b.Acquire(t.Context(), r)
	if err != nil || reply.Outcome != backend.OutcomeGranted {
		t.Fatalf("Acquire returns %+v, %v", reply, err)
	}
	return reply.Token
}

// acquire is the process. It acquires the key "k" by a read and a write, and again until a reply arrives.
// Before the first write it waits for a line.
func acquire(dsn string, in *bufio.Scanner) error {
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	conf.MaxConns = 1
	dial, gate := conf.ConnConfig.DialFunc, &gate{in: in}
	conf.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &gated{Conn: conn, gate: gate}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := postgres.NewBackend(pool, backend.Options{Locker: "L", Closing: make(chan struct{}), CleanupsFailed: func(int, error) {}}, postgres.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	for _, name := range []string{"prepared", "prepared", "k"} { // then the connection has prepared an INSERT and an UPDATE
		r := acquisition(b, name, "stopped")
		r.First = false // it reads the row
		reply, err := b.Acquire(context.Background(), r)
		for ; err != nil && !b.Permanent(err); reply, err = b.Acquire(context.Background(), r) {
		}
		if err != nil {
			return err
		}
		if name == "k" {
			process.WriteLine(os.Stdout, reply)
		} else if _, err := b.Release(context.Background(), backend.ReleaseRequest{Key: r.Key, ID: r.ID, Token: reply.Token, Retention: time.Hour}); err != nil {
			return err
		}
	}
	return nil
}

// gate keeps the write of the row "k" back until a line arrives.
type gate struct {
	in   *bufio.Scanner
	sent int // messages with its name: the read, the write
}

// gated is a connection with a gate. Its deadline, at which the call ends, also waits.
type gated struct {
	net.Conn
	*gate
	mu sync.Mutex
}

// Write sends b.
func (c *gated) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(b, []byte("x:k")) {
		if c.sent++; c.sent == 2 {
			process.WriteLine(os.Stdout, backend.AcquireReply{})
			c.in.Scan()
		}
	}
	return c.Conn.Write(b)
}

// SetDeadline sets the deadline of what comes after a Write.
func (c *gated) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}
