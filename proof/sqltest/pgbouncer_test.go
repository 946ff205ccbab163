//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// bouncer starts PgBouncer in transaction mode in front of a new database. It returns the dsn, and
// the version of PgBouncer.
func bouncer(t *testing.T) (dsn, version string) {
	t.Helper()
	s := postgres.need(t)
	program, err := lookPath("pgbouncer")
	if err != nil {
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatalf("%v, and CI is true", err)
		}
		t.Skip(err)
	}
	_, direct := s.openAs(t, "")
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // a socket needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as, err := owner(dir)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=%s user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, s.dir, dir), 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ = strings.Cut(strings.TrimPrefix(string(out), "PgBouncer "), "\n")
	cmd := exec.Command(program, "-q", config) //nolint:noctx // until the test ends
	cmd.SysProcAttr = as
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alive, watcher, err := watch(cmd.Process.Pid, syscall.SIGKILL, dir)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if watcher != nil {
			_ = watcher.Process.Kill() // before its pipe closes, as in server.begin
			_ = alive.Close()
			_ = watcher.Wait()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	dsn = strings.Replace(direct, "host="+s.dir, "host="+dir+" port=6432", 1)
	db, err := sql.Open("pgx", dsn+" default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for deadline := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		if err := db.PingContext(t.Context()); err == nil {
			return dsn, version
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
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
