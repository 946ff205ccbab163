//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

func locker(t *testing.T, pool *pgxpool.Pool, o postgres.Options) *lockcore.Locker {
	t.Helper()
	o.Observer = event.Discard
	l, err := postgres.New(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// New checks its arguments, and sends no command.
func TestNew(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "host=/nonexistent")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := locker(t, pool, postgres.Options{Schema: "s"})
	if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("without a server: %v, want ErrUnavailable", err)
	}
	if !strings.HasPrefix(l.String(), "holdfast on postgres") {
		t.Errorf("the Locker is %q", l)
	}
	if _, err := postgres.New(nil, postgres.Options{}); err == nil {
		t.Error("New accepts no pool")
	}
	if _, err := postgres.New(pool, postgres.Options{Options: lockcore.Options{Terms: lockcore.Terms{Lease: time.Millisecond}}}); err == nil {
		t.Error("New accepts a lease of 1 ms")
	}
	for instead, o := range map[string]lockcore.Options{"Options.Schema": {Prefix: "p"}, "synchronous_standby_names": {ReplicaAcks: lockcore.ReplicaAcks{N: 1}}} {
		if _, err := postgres.New(pool, postgres.Options{Options: o}); !errors.Is(err, lockcore.ErrUnsupported) || !strings.Contains(err.Error(), instead) {
			t.Errorf("New with %+v returns error %v, want ErrUnsupported with %s", o, err, instead)
		}
	}
	if _, err := postgres.Purge(t.Context(), nil, postgres.Options{}); err == nil {
		t.Error("Purge accepts no pool")
	}
}

// refused checks that the error of a call says what to do.
func refused(t *testing.T, pool *pgxpool.Pool, o postgres.Options, want string) {
	t.Helper()
	l := locker(t, pool, o)
	if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want ErrUnavailable with %s", err, want)
	}
}

// A call on a server that refuses its statement returns an error that says what to do.
func TestRefused(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	refused(t, aged(t, pool), postgres.Options{}, "must be 13 or later: update it")
	refused(t, with(t, pool, "options='-c default_transaction_read_only=on'"), postgres.Options{}, "connect to the primary")
	refused(t, pool, postgres.Options{Schema: "nowhere"}, "execute the statements of postgres.Create, or set Options.Schema")
	run(t, pool, "CREATE SCHEMA locks")
	run(t, pool, postgres.Create("locks"))
	id, as := role(t, pool)
	mend := `GRANT USAGE ON SCHEMA "locks" TO ` + id + `; GRANT SELECT, INSERT, UPDATE, DELETE ON "locks"."holdfast_keys" TO ` + id
	refused(t, as, postgres.Options{Schema: "locks"}, mend)
	run(t, pool, mend)
	lease, err := locker(t, as, postgres.Options{Schema: "locks"}).Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(t.Context())
}

// Lockers exclude each other in a schema, and not in another one. Close leaves the pool of the user open.
func TestLockers(t *testing.T) {
	pool := database(t)
	run(t, pool, `CREATE SCHEMA "my schema"`)
	run(t, pool, postgres.Create("my schema"))
	a, b, other := locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{}), locker(t, pool, postgres.Options{Schema: "my schema"})
	lease, err := a.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	var busy *lockcore.BusyError
	if _, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.As(err, &busy) {
		t.Errorf("the key is held, but Acquire returns error %v", err)
	}
	elsewhere, err := other.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	_ = elsewhere.Release(t.Context())
	got := make(chan error, 1)
	go func() {
		l, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	until(t, pool, `SELECT coalesce(bool_and(data IS NOT NULL), false) FROM holdfast_keys`) // b is in the queue
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	for _, l := range []*lockcore.Locker{a, b, other} {
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	run(t, pool, "SELECT 1")
}

// Calls of several Lockers never overlap, and their tokens grow, also if the default isolation of the
// connections is stricter than READ COMMITTED, and while connections are ended.
// Shows: I1, I3
func TestExclusion(t *testing.T) {
	testlevel.Full(t)
	for _, isolation := range []string{"read committed", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			pool := database(t)
			run(t, pool, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_isolation = %s', current_database()); END $$`, "''"+isolation+"''"))
			var inside atomic.Int32
			var last atomic.Int64
			var wg sync.WaitGroup
			done, stop := context.WithCancel(t.Context())
			var killer sync.WaitGroup
			killer.Go(func() {
				for done.Err() == nil {
					_, _ = pool.Exec(done, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`)
					time.Sleep(200 * time.Millisecond)
				}
			})
			for range 4 {
				l := locker(t, pool, postgres.Options{})
				for range 4 {
					wg.Go(func() {
						for held := 0; held < 15; {
							lease, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
							if errors.Is(err, lockcore.ErrUnavailable) {
								continue
							}
							if err != nil {
								t.Error(err)
								return
							}
							held++
							if n := inside.Add(1); n != 1 {
								t.Errorf("%d calls hold the key", n)
							}
							if token := lease.Token(); last.Swap(token) >= token {
								t.Errorf("token %d does not grow", token)
							}
							time.Sleep(time.Millisecond)
							inside.Add(-1)
							_ = lease.Release(t.Context())
						}
					})
				}
			}
			wg.Wait()
			stop()
			killer.Wait()
		})
	}
}

// Calls that use all connections of their pool delay neither a renewal nor a release.
// Shows: L11
func TestEndsDoNotWait(t *testing.T) {
	pool := database(t)
	conf := pool.Config()
	conf.MaxConns = 1
	small, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	b := world(t, small, postgres.Options{}).Backend("L")
	defer b.Close()
	request := func(name string) backend.AcquireRequest {
		key := b.Key(backend.KindExclusive, name)
		return backend.AcquireRequest{Key: &key, ID: name, Lease: time.Minute, Retention: time.Hour, First: true, Timeout: time.Second}
	}
	held, waits := request("held"), request("waits")
	for _, r := range []backend.AcquireRequest{waits, held} {
		if reply, err := b.Acquire(t.Context(), r); err != nil || reply.Outcome != backend.OutcomeGranted {
			t.Fatalf("Acquire returns %+v, %v", reply, err)
		}
	}
	busy, stop := context.WithCancel(t.Context())
	end := locked(t, pool, `UPDATE holdfast_keys SET owner = NULL, version = 1 WHERE name = 'x:waits'`, func() {
		var wg sync.WaitGroup
		for range 16 { // each of them waits for a second, most of them for the connection
			wg.Go(func() {
				for busy.Err() == nil {
					_, _ = b.Acquire(busy, waits)
				}
			})
		}
		wg.Wait()
	})
	if reply := b.Renew(t.Context(), []backend.RenewRequest{{Key: held.Key, ID: held.ID, Lease: time.Minute, Retention: time.Hour}})[0]; reply.Err != nil || reply.Verdict != backend.VerdictKept {
		t.Errorf("Renew returns %+v", reply)
	}
	if reply, err := b.Release(t.Context(), backend.ReleaseRequest{Key: held.Key, ID: held.ID, Retention: time.Minute}); err != nil || !reply.Released {
		t.Errorf("Release returns %+v, %v", reply, err)
	}
	stop()
	end()
}

// The Example works.
func TestExample(t *testing.T) {
	pool := database(t)
	t.Setenv("DATABASE_URL", pool.Config().ConnString())
	Example()
	until(t, pool, `SELECT count(*) = 1 FROM holdfast_keys WHERE name = 'x:partner:acme' AND owner IS NULL`)
}

// Purge and the rows of keys that were used.
func TestPurge(t *testing.T) {
	pool := database(t)
	l := locker(t, pool, postgres.Options{})
	for _, key := range []string{"freed", "held"} {
		lease, err := l.Acquire(t.Context(), key, lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		if key == "freed" {
			_ = lease.Release(t.Context())
		} else {
			defer func() { _ = lease.Release(context.Background()) }()
		}
	}
	for i, want := range []int64{0, 1, 0} {
		if n, err := postgres.Purge(t.Context(), pool, postgres.Options{}); err != nil || n != want {
			t.Errorf("Purge %d returns %d and error %v, want %d", i, n, err, want)
		}
		run(t, pool, `UPDATE holdfast_keys SET due = 0`) // as if the time had come
	}
	var name []byte
	if err := pool.QueryRow(t.Context(), `SELECT name FROM holdfast_keys`).Scan(&name); err != nil || string(name) != "x:held" {
		t.Errorf("row %q is left, %v", name, err)
	}
}
