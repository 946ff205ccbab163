//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// Durable statements wait for a synchronous standby, also if the connection does not, and the others do
// not wait. If the wait is canceled, the error is an AcksError: the effect is there, but may be lost.
// Shows: P9, I1
func TestStandby(t *testing.T) {
	testlevel.Full(t)
	pgtest.Need(t)
	server, err := pgtest.Start("-c fsync=off -c synchronous_commit=off -c synchronous_standby_names=nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	pool := connect(t, server.DSN("postgres"))
	run(t, pool, postgres.Create(""))
	s := storeOn(t, pool)
	if ok, err := s.Free(t.Context(), "x:k", "owner", 0); ok || err != nil {
		t.Fatal(ok, err)
	}
	write := func(name string, durable bool) rows.Write {
		_, now := readRow(t, s, name)
		return rows.Write{Name: name, Read: now, Row: rows.Row{Version: 1}, Durable: durable}
	}
	for _, step := range []struct {
		what string
		f    func(ctx context.Context) []error
		want []bool // of each error: it was not acknowledged
	}{
		{"a grant", func(ctx context.Context) []error {
			_, granted, err := s.Grant(ctx, grant("x:k"))
			if granted {
				t.Error("a grant that was not acknowledged is one")
			}
			return []error{err}
		}, []bool{true}},
		{"a release", func(ctx context.Context) []error {
			freed, err := s.Free(ctx, "x:k", "owner", 0)
			if !freed {
				t.Error("nothing to free, although the grant has its effect")
			}
			return []error{err}
		}, []bool{false}},
		{"another grant", func(ctx context.Context) []error {
			_, _, err := s.Grant(ctx, grant("o:k"))
			return []error{err}
		}, []bool{true}},
		{"a completion", func(ctx context.Context) []error {
			_, err := s.Finish(ctx, "o:k", "owner", []byte("data"), 60e6)
			return []error{err}
		}, []bool{true}},
		{"writes", func(ctx context.Context) []error {
			return s.Write(ctx, []rows.Write{write("x:1", false), write("x:2", true), write("x:3", false), write("x:4", true)})
		}, []bool{false, true, false, true}},
		{"a notification", func(ctx context.Context) []error {
			return []error{s.Notify(ctx, []rules.Notice{{Locker: "L"}})}
		}, []bool{false}},
	} {
		done := make(chan []error, 1)
		go func() { done <- step.f(context.WithoutCancel(t.Context())) }()
		var errs []error
		canceled := 0
		for deadline := time.Now().Add(30 * time.Second); errs == nil && time.Now().Before(deadline); {
			select {
			case errs = <-done:
			case <-time.After(5 * time.Millisecond):
				var n int
				if err := pool.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				canceled += n
			}
		}
		if len(errs) != len(step.want) {
			t.Fatalf("%s: %d replies", step.what, len(errs))
		}
		waited := false
		for i, err := range errs {
			waited = waited || step.want[i]
			var acks *backend.AcksError
			if errors.As(err, &acks) != step.want[i] || err != nil && !step.want[i] {
				t.Errorf("%s: error %d is %v, want an AcksError: %t", step.what, i, err, step.want[i])
			}
		}
		if waited != (canceled > 0) {
			t.Errorf("%s: waited: %t, want %t", step.what, canceled > 0, waited)
		}
	}
}

// Without a synchronous standby the calls leave only a bounded number of processes of the server behind, and
// the error says why. When there is one again, they end.
func TestMissingStandby(t *testing.T) {
	testlevel.Full(t)
	pgtest.Need(t)
	server, err := pgtest.Start("-c fsync=off -c max_connections=30")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	pool := connect(t, server.DSN("postgres"))
	run(t, pool, postgres.Create(""))
	setStandby := func(name string) {
		t.Helper()
		run(t, pool, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		run(t, pool, `SELECT pg_reload_conf()`)
		until(t, pool, `SELECT current_setting('synchronous_standby_names') = '`+name+`'`)
	}
	run(t, pool, `ALTER ROLE CURRENT_USER SET synchronous_commit = off`)
	pool.Reset()
	setStandby("nobody")
	l := locker(t, connect(t, server.DSN("postgres")+" pool_max_conns=3"), postgres.Options{})
	for i := range 12 {
		_, err = l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{Wait: lockcore.NoWait})
		if !errors.Is(err, lockcore.ErrUnavailable) {
			t.Fatalf("Acquire returns %v", err)
		}
	}
	if !strings.Contains(err.Error(), "statements of this user wait for a synchronous standby: start one") {
		t.Errorf("Acquire returns %v", err)
	}
	var waiting int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting); err != nil || waiting == 0 || waiting > 10 {
		t.Errorf("%d statements wait, %v", waiting, err)
	}
	setStandby("")
	until(t, pool, `SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
	le, err := l.Acquire(t.Context(), "other", lockcore.Terms{})
	if err := errors.Join(err, le.Release(t.Context())); err != nil {
		t.Error(err)
	}
}
