//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// bouncer starts PgBouncer in transaction mode in front of a new database. It returns the dsn, and
// the version of PgBouncer.
func bouncer(t *testing.T) (dsn, version string) {
	t.Helper()
	pgtest.NeedOnly(t, "pgbouncer")
	s := postgres.need(t)
	_, direct := s.openAs(t, "")
	pooler, err := s.postgres.StartPooler(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Stop)
	program, _ := pgtest.Path("pgbouncer")
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ = strings.Cut(strings.TrimPrefix(string(out), "PgBouncer "), "\n")
	return pooler.DSN(direct[strings.LastIndex(direct, "=")+1:]), version
}

// Behind PgBouncer in transaction mode, fence and sqlonce work with a mode of pgx that prepares no
// statement for later transactions. The default mode fails before PgBouncer 1.21, because a
// prepared statement stays in the connection of another transaction.
func TestPgBouncer(t *testing.T) {
	dsn, version := bouncer(t)
	var minor int
	if _, err := fmt.Sscanf(version, "1.%d", &minor); err != nil {
		t.Fatalf("version %q: %v", version, err)
	}
	for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			db, err := sql.Open("pgx", dsn+" default_query_exec_mode="+mode)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			var mu sync.Mutex
			var errs []error
			var calls sync.WaitGroup
			runs := map[string]int{}
			for worker := range 4 {
				calls.Go(func() {
					for n := range 20 {
						key := fmt.Sprint(mode, n)
						ran, err := throughBouncer(t.Context(), db, key, int64(4*n+worker+1))
						mu.Lock()
						if err != nil {
							errs = append(errs, err)
						} else if ran {
							runs[key]++
						}
						mu.Unlock()
					}
				})
			}
			calls.Wait()
			switch err := errors.Join(errs...); {
			case mode != "cache_statement" && (err != nil || len(runs) != 20):
				t.Errorf("%d of 20 keys ran: %v", len(runs), err)
			case mode == "cache_statement" && minor < 21 && (err == nil || !strings.Contains(err.Error(), "prepared statement")):
				t.Errorf("PgBouncer %s: no error about a prepared statement: %v", version, err)
			}
			for key, n := range runs {
				if n > 1 {
					t.Errorf("%s ran %d times", key, n)
				}
			}
		})
	}
}

// throughBouncer advances the fence of a key and does its work once, in one transaction.
func throughBouncer(ctx context.Context, db *sql.DB, key string, token int64) (ran bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	outcome, err := sqlonce.Do(ctx, sqlonce.Postgres(tx), key, sqlonce.Options{}, func(ctx context.Context) error {
		return fence.Postgres.Advance(ctx, tx, hold(key, token, fmt.Sprint(token)))
	})
	if err != nil {
		return false, err
	}
	return outcome == guard.Ran, tx.Commit()
}
