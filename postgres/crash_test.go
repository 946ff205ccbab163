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
	server, pool := crashable(t)
	last := int64(0)
	for i := range 5 {
		last = crash(t, server, pool, i, last)
	}
}

// crashable starts a server that writes its log only if a statement waits for that, or after ten seconds.
func crashable(t *testing.T) (*pgtest.Server, *pgxpool.Pool) {
	t.Helper()
	pgtest.Need(t)
	server, err := pgtest.Start("-c fsync=off -c synchronous_commit=off -c wal_writer_delay=10s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	pool := connect(t, server.DSN("postgres"))
	run(t, pool, postgres.Create(""))
	run(t, pool, "CHECKPOINT")
	return server, pool
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

// A crash may lose what does not wait for the disk. Each test of a write returns whether the crash has
// lost it, and checks that this costs only time.
// Shows: I3
func TestCrashCostsTime(t *testing.T) {
	testlevel.Full(t)
	server, pool := crashable(t)
	ctx := t.Context()
	crash := func() backend.Backend {
		t.Helper()
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
		until(t, pool, "SELECT true") // new connections
		b := world(t, pool, postgres.Options{}).Backend("after")
		t.Cleanup(b.Close)
		return b
	}
	inspect := func(b backend.Backend, key *backend.Key) backend.Status {
		t.Helper()
		s, err := b.Inspect(ctx, key, backend.NoRecord)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for what, write := range map[string]func(t *testing.T, b backend.Backend, held backend.AcquireRequest, token int64) (lost bool){
		// The key is busy until the lease ends.
		"a release": func(t *testing.T, b backend.Backend, held backend.AcquireRequest, token int64) bool {
			t.Helper()
			if reply, err := b.Release(ctx, backend.ReleaseRequest{Key: held.Key, ID: held.ID, Token: token, Retention: time.Hour, Plain: true}); err != nil || !reply.Released {
				t.Errorf("Release returns %+v, %v", reply, err)
			}
			b = crash()
			lost := inspect(b, held.Key).Lease > 0
			run(t, pool, `UPDATE holdfast_keys SET lease_end = 1 WHERE name = $1`, []byte(held.Key.Stored[0])) // as if its time had come
			if next := tokenOf(t, b, acquisition(b, held.Key.Name, "next")); next <= token {
				t.Errorf("token %d after %d", next, token)
			}
			return lost
		},
		// The waiter asks again at the end of the lease, and is in the queue again.
		"an entry of the queue": func(t *testing.T, b backend.Backend, held backend.AcquireRequest, _ int64) bool {
			t.Helper()
			waits := acquisition(b, held.Key.Name, "waits")
			waits.Queue = true
			enter := func() {
				t.Helper()
				if reply, err := b.Acquire(ctx, waits); err != nil || reply.Outcome != backend.OutcomeBusy || reply.Queue != 1 {
					t.Errorf("Acquire returns %+v, %v", reply, err)
				}
			}
			enter()
			b = crash()
			lost := inspect(b, held.Key).Queue == 0
			enter()
			return lost
		},
		// The task comes back after its own delay, and is parked again.
		"a parked entry": func(t *testing.T, b backend.Backend, held backend.AcquireRequest, _ int64) bool {
			t.Helper()
			park(t, b, held.Key)
			b = crash()
			lost := inspect(b, held.Key).Parked == 0
			park(t, b, held.Key)
			return lost
		},
		// The task ran, and is woken once more.
		"a removed entry": func(t *testing.T, b backend.Backend, held backend.AcquireRequest, _ int64) bool {
			t.Helper()
			park(t, b, held.Key)
			tokenOf(t, b, acquisition(b, held.Key.Name+" durable", "L")) // what was written before is on the disk too
			remove := backend.UnparkRequest{Key: held.Key, Remove: []string{"queue/task"}}
			if reply, err := b.Unpark(ctx, remove); err != nil || reply.Removed != 1 {
				t.Errorf("Unpark returns %+v, %v", reply, err)
			}
			b = crash()
			lost := inspect(b, held.Key).Parked == 1
			if reply, err := b.Unpark(ctx, remove); err != nil || reply.Count != 0 {
				t.Errorf("Unpark returns %+v, %v", reply, err)
			}
			return lost
		},
		// The number of a task of Latest is given again.
		"a trigger": func(t *testing.T, b backend.Backend, held backend.AcquireRequest, _ int64) bool {
			t.Helper()
			note := backend.TriggerRequest{Key: held.Key, Op: backend.TriggerNote, Entry: "queue/task", Fresh: true, Keep: time.Hour, Most: 10}
			first, err := b.Order(ctx, note)
			if err != nil {
				t.Fatal(err)
			}
			b = crash()
			again, err := b.Order(ctx, note)
			if err != nil || again.Number < first.Number || again.Outcome != backend.TriggerNewest {
				t.Errorf("Order returns %+v, %v, and %+v before", again, err, first)
			}
			return again.Number > first.Number
		},
	} {
		t.Run(what, func(t *testing.T) {
			for i := range 5 { // the server may have written its log at this moment
				b := world(t, pool, postgres.Options{}).Backend("before")
				held := acquisition(b, fmt.Sprint(what, i), "held")
				token := tokenOf(t, b, held)
				lost := write(t, b, held, token)
				if b.Close(); lost {
					return
				}
			}
			t.Error("no crash has lost it")
		})
	}
}

func park(t *testing.T, b backend.Backend, key *backend.Key) {
	t.Helper()
	if reply, err := b.Park(t.Context(), backend.ParkRequest{Key: key, Entry: "queue/task", Most: 10, Keep: time.Hour}); err != nil || reply.Outcome != backend.Parked || reply.Count != 1 {
		t.Errorf("Park returns %+v, %v", reply, err)
	}
}
