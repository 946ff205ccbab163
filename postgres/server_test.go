//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/postgres"
)

// server is the server of all tests that need no server of their own.
var (
	start = sync.OnceValues(func() (*pgtest.Server, error) {
		s, err := pgtest.Start(pgtest.Fast + " -c max_connections=300")
		running = s
		return s, err
	})
	running   *pgtest.Server
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	process.Work(acquire)
	code := m.Run()
	if running != nil {
		running.Stop()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// database returns a pool of a new database with the table.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pgtest.Need(t)
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, s.DSN("postgres"))
	name := fmt.Sprintf("test%d", databases.Add(1))
	run(t, admin, "CREATE DATABASE "+name)
	pool := connect(t, s.DSN(name))
	for range 2 { // each instance does this when it starts
		run(t, pool, postgres.Create(""))
	}
	return pool
}

func connect(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func run(t *testing.T, pool *pgxpool.Pool, text string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
