//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// pgx passes notifications to a callback of the configuration instead of WaitForNotification. The pool may
// have one, and the Locker still gets its own.
func TestOnNotification(t *testing.T) {
	conf := database(t).Config()
	conf.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("the callback of the pool got a notification") }
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	le, err := locker(t, pool, postgres.Options{}).Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	b := locker(t, pool, postgres.Options{})
	go func() {
		le, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
		waited <- errors.Join(err, le.Release(t.Context()))
	}()
	until(t, pool, `SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name LIKE 'holdfast %' AND datname = current_database()`)
	if err := errors.Join(le.Release(t.Context()), <-waited); err != nil {
		t.Error(err)
	}
}

// Rows that no Locker has written, with names that are none, are left alone.
func TestRowsByHand(t *testing.T) {
	pool := database(t)
	run(t, pool, `INSERT INTO holdfast_keys (name, version, token, due) VALUES ('', 1, 1, 0), ('x', 1, 1, 0), ('y:k', 1, 1, 0)`)
	l := locker(t, pool, postgres.Options{})
	le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = le.Release(t.Context()) }()
	if n, err := postgres.Purge(t.Context(), pool, postgres.Options{}); n != 0 || err != nil {
		t.Errorf("Purge deletes %d rows: %v", n, err)
	}
	n := 0
	for h, err := range doctor.List(t.Context(), l, doctor.ListOptions{}) {
		if n++; err != nil || h.Key != "k" {
			t.Errorf("List yields %+v, %v", h, err)
		}
	}
	if n != 1 {
		t.Errorf("List yields %d keys", n)
	}
}

// The server ends a statement that waits for a lock after its connection was given up. So calls that fail
// while a table is locked leave no processes of the server behind.
func TestStatementsEnd(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	l := locker(t, pool, postgres.Options{})
	end := locked(t, pool, `LOCK TABLE holdfast_keys IN ACCESS EXCLUSIVE MODE`, func() {
		if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("Acquire returns %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	until(t, pool, `SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	end()
}

// A connection whose statement has no reply leaves the pool at once, although the statement still runs.
func TestNoReply(t *testing.T) {
	pool := database(t)
	s := storeOn(t, connect(t, pool.Config().ConnString()+" pool_max_conns=1"))
	if _, _, err := s.Grant(t.Context(), grant("x:k")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	end := locked(t, pool, `UPDATE holdfast_keys SET version = 1`, func() {
		_, err := s.Free(ctx, "x:k", "owner", 0)
		failed <- err
	})
	defer end()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Free returns %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second) // pgx would drain it for 15 s
	defer cancel()
	if _, granted, err := s.Grant(ctx, grant("x:other")); !granted || err != nil {
		t.Errorf("Grant returns %t, %v", granted, err)
	}
}

// An error that another connection may not have closes the connection.
func TestStaleConnection(t *testing.T) {
	pool := database(t)
	for _, c := range []struct {
		code, says string
		spoil      string // executed once, on the first connection
		call       func(rows.Store) error
	}{
		{"25006", "connect to the primary", "SET default_transaction_read_only = on", func(s rows.Store) error {
			_, err := s.Free(t.Context(), "x:k", "owner", 0)
			return err
		}},
		{"25006", "connect to the primary", "SET default_transaction_read_only = on", func(s rows.Store) error {
			return s.Write(t.Context(), []rows.Write{{Name: "x:k", Row: rows.Row{Version: 1}}})[0]
		}},
		{"26000", "default_query_exec_mode=exec", "DISCARD ALL", func(s rows.Store) error {
			return s.Write(t.Context(), []rows.Write{{Name: "x:k", Row: rows.Row{Version: 1}}})[0]
		}},
	} {
		conf, spoiled := pool.Config(), false
		conf.MaxConns = 1
		conf.AfterRelease = func(on *pgx.Conn) bool {
			if spoiled {
				return true
			}
			spoiled = true
			_, err := on.Exec(context.Background(), c.spoil)
			return err == nil
		}
		spoiling, err := pgxpool.NewWithConfig(context.Background(), conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(spoiling.Close)
		s := storeOn(t, spoiling)
		for i := range 3 {
			err := c.call(s)
			if errors.Is(err, rows.ErrConflict) {
				err = nil
			}
			e, is := errors.AsType[*pgconn.PgError](err)
			if is != (i == 1) || is && (e.Code != c.code || !strings.Contains(err.Error(), c.says) || s.MayTakeEffect(err)) || !is && err != nil {
				t.Errorf("%s, call %d: %v", c.code, i, err)
			}
		}
	}
}

// Under serializable a read fails if what it has read depends on transactions that have ended. It is
// repeated.
func TestSerializableRead(t *testing.T) {
	pool := database(t)
	run(t, pool, `CREATE TABLE other (n int)`)
	run(t, pool, `INSERT INTO other VALUES (1)`)
	s := storeOn(t, connect(t, pool.Config().ConnString()+" options='-c default_transaction_isolation=serializable'"))
	if _, _, err := s.Grant(t.Context(), grant("x:k")); err != nil {
		t.Fatal(err)
	}
	pivot, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pivot.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := pivot.Exec(t.Context(), `SELECT * FROM other`); err != nil {
		t.Fatal(err)
	}
	first, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.Exec(t.Context(), `UPDATE other SET n = 2`)
	if err := errors.Join(err, first.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`LOCK TABLE holdfast_keys IN ACCESS EXCLUSIVE MODE`, `UPDATE holdfast_keys SET token = token + 1`} {
		if _, err := pivot.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan error, 1)
	go func() {
		_, err := s.Read(t.Context(), []string{"x:k"})
		read <- err
	}()
	until(t, pool, `SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	if err := pivot.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}
