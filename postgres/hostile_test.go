//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
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
