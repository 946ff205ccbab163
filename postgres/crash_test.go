//go:build unix

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/postgres"
)

// A crash of the server loses no grant, renewal or record that was acknowledged, also if the connections
// have synchronous_commit = off, and the next token is greater.
// Shows: P8, I1, I3, I9
func TestCrash(t *testing.T) {
	testlevel.Full(t)
	pgtest.Need(t)
	server, err := pgtest.Start("-c fsync=off -c synchronous_commit=off -c wal_writer_delay=10s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	pool := connect(t, server.DSN("postgres"))
	run(t, pool, postgres.Create(""))
	run(t, pool, "CHECKPOINT")
	last := int64(0)
	for i := range 5 {
		last = crash(t, server, pool, i, last)
	}
}

// crash acquires keys, lets the server crash, and returns the greatest token.
func crash(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool, i int, last int64) int64 {
	t.Helper()
	b := world(t, pool, postgres.Options{}).Backend(fmt.Sprint("L", i))
	defer b.Close()
	held, once, again := b.Key(backend.KindExclusive, fmt.Sprint("held", i)), b.Key(backend.KindOnce, fmt.Sprint("once", i)), b.Key(backend.KindExclusive, "again")
	request := func(key *backend.Key, first bool) backend.AcquireRequest {
		return backend.AcquireRequest{Key: key, ID: key.Name + fmt.Sprint(i), Lease: 10 * time.Second, Retention: time.Hour, First: first, Timeout: time.Second}
	}
	acquire := func(r backend.AcquireRequest) backend.AcquireReply {
		t.Helper()
		reply, err := b.Acquire(t.Context(), r)
		if err != nil || reply.Outcome != backend.OutcomeGranted {
			t.Fatalf("Acquire returns %+v, %v", reply, err)
		}
		return reply
	}
	g := acquire(request(&again, true))
	if g.Token <= last {
		t.Errorf("token %d after a crash, want more than %d", g.Token, last)
	}
	if reply, err := b.Release(t.Context(), backend.ReleaseRequest{Key: &again, ID: request(&again, true).ID, Token: g.Token, Retention: time.Hour, Plain: true}); err != nil || !reply.Released {
		t.Errorf("Release returns %+v, %v", reply, err)
	}
	first := i%2 == 0 // by a plain statement or by the rules
	h := acquire(request(&held, first))
	if reply := b.Renew(t.Context(), []backend.RenewRequest{{Key: &held, ID: held.Name + fmt.Sprint(i), Lease: time.Minute, Retention: time.Hour}})[0]; reply.Err != nil {
		t.Error(reply.Err)
	}
	o := acquire(request(&once, first))
	if reply, err := b.Complete(t.Context(), backend.CompleteRequest{Key: &once, ID: once.Name + fmt.Sprint(i), Token: o.Token, Record: []byte("record"), Keep: time.Hour, Plain: o.Plain}); err != nil || !reply.Released {
		t.Errorf("Complete returns %+v, %v", reply, err)
	}
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	until(t, pool, "SELECT true") // new connections
	if s, err := b.Inspect(t.Context(), &held, backend.NoRecord); err != nil || s.State != backend.StateHeld || s.Token != h.Token || s.Lease < 59*time.Second {
		t.Errorf("crash %d: the held key is %+v, %v", i, s, err)
	}
	if s, err := b.Inspect(t.Context(), &once, backend.WholeRecord); err != nil || s.State != backend.StateDone || string(s.Record) != "record" {
		t.Errorf("crash %d: the done key is %+v, %v", i, s, err)
	}
	return max(h.Token, o.Token)
}
