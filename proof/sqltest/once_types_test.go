//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// counting is a transaction that counts its statements.
type counting struct {
	fence.Tx
	n int
}

func (c *counting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.n++
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *counting) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.n++
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// Do needs one statement besides the effect, DoValue two, and a replay two. MySQL does not report
// whether a row was inserted, so it needs one more.
// Shows: Q15
func TestOnceStatements(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		first, value, replay := 1, 2, 2
		if s.dialect == fence.MySQL {
			first, value = 2, 3
		}
		for _, c := range []struct {
			what, key string
			value     bool
			want      int
		}{{"Do", "a", false, first}, {"DoValue", "b", true, value}, {"replay of Do", "a", false, replay}, {"replay of DoValue", "b", true, replay}} {
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) (err error) {
				count := &counting{Tx: tx}
				if c.value {
					_, err = sqlonce.DoValue(t.Context(), s.once(count), c.key, sqlonce.Options{}, func(context.Context) (int, error) { return 7, nil })
				} else {
					_, err = sqlonce.Do(t.Context(), s.once(count), c.key, sqlonce.Options{}, nothing)
				}
				if count.n != c.want {
					t.Errorf("%s: %d statements, want %d", c.what, count.n, c.want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A pool or a connection does not compile, because each of their statements would be a separate
// transaction.
func TestOnceNeedsATransaction(t *testing.T) {
	dir, err := os.MkdirTemp(".", "_types") //nolint:usetesting // in this module, so that its imports resolve; ./... leaves it out
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, c := range map[string]struct{ imports, call, want string }{
		"sql pool":       {`"database/sql"`, "sqlonce.Postgres((*sql.DB)(nil))", "does not implement fence.Tx"},
		"sql connection": {`"database/sql"`, "sqlonce.MySQL((*sql.Conn)(nil))", "does not implement fence.Tx"},
		"pgx pool":       {`"github.com/jackc/pgx/v5/pgxpool"`, "sqlonce.Pgx((*pgxpool.Pool)(nil))", "does not match sqlonce.PgxTx"},
		"pgx connection": {`"github.com/jackc/pgx/v5"`, "sqlonce.Pgx((*pgx.Conn)(nil))", "does not match sqlonce.PgxTx"},
		"transactions":   {`"database/sql"; "github.com/jackc/pgx/v5"`, "sqlonce.Postgres((*sql.Tx)(nil)), sqlonce.Pgx(pgx.Tx(nil))", ""},
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "_")+".go")
		text := "package main\nimport (" + c.imports + "; \"github.com/holdfast-go/holdfast/sqlonce\")\nfunc main() { use(" + c.call + ") }\nfunc use(...any) {}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "go", "vet", "./"+file).CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// A result whose type has an unexported field is refused before the work runs. Roll back, and the
// key is free.
// Shows: O10
func TestOnceLossyType(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		type lossy struct{ amount int }
		db := s.openEffects(t)
		for range 2 {
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
				res, err := sqlonce.DoValue(t.Context(), s.once(tx), "k", sqlonce.Options{}, func(context.Context) (lossy, error) {
					t.Error("the work ran")
					return lossy{7}, nil
				})
				if res.Outcome != guard.NotRun {
					t.Errorf("the outcome is %v", res.Outcome)
				}
				return err
			})
			if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "lossy.amount") {
				t.Errorf("got error %v", err)
			}
		}
	})
}
