//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	litedriver "modernc.org/sqlite"
	litecodes "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// The functions before the first test are in docs/sql.md.

var errSoldOut = errors.New("sold out")

// sell takes a unit with one statement. The database locks the row until the transaction ends.
func sell(ctx context.Context, tx fence.Tx, item int64) error {
	res, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - 1 WHERE item = $1 AND units > 0`, item)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errSoldOut
}

// sellLocked locks the row until the transaction ends, so that the program can decide in between.
func sellLocked(ctx context.Context, tx fence.Tx, item int64) error {
	var units int64
	if err := tx.QueryRowContext(ctx, `SELECT units FROM stock WHERE item = $1 FOR UPDATE`, item).Scan(&units); err != nil {
		return err
	}
	if units == 0 {
		return errSoldOut
	}
	_, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE item = $2`, units-1, item)
	return err
}

// sellNamed locks a name until the transaction ends. It needs PostgreSQL, but no row.
func sellNamed(ctx context.Context, tx fence.Tx, item int64) error {
	name := fmt.Sprint("stock:", item)
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, name); err != nil {
		return err
	}
	var units int64
	if err := tx.QueryRowContext(ctx, `SELECT units FROM stock WHERE item = $1`, item).Scan(&units); err != nil {
		return err
	}
	if units == 0 {
		return errSoldOut
	}
	_, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE item = $2`, units-1, item)
	return err
}

var errConflict = errors.New("another transaction has changed the row")

// sellVersioned does not lock the row. It writes only if the row has not changed since its read.
func sellVersioned(ctx context.Context, tx fence.Tx, item int64) error {
	var units, version int64
	if err := tx.QueryRowContext(ctx, `SELECT units, version FROM stock WHERE item = $1`, item).Scan(&units, &version); err != nil {
		return err
	}
	if units == 0 {
		return errSoldOut
	}
	res, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1, version = version + 1 WHERE item = $2 AND version = $3`, units-1, item, version)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errConflict
}

// retry runs a transaction up to 20 times while it conflicts with another one. A random, growing pause separates the tries.
func retry(ctx context.Context, transaction func(context.Context) error) error {
	for try := 1; ; try++ {
		err := transaction(ctx)
		if try == 20 || !errors.Is(err, errConflict) && !again(err) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Duration(min(try, 16)) * time.Millisecond)):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// again reports whether the server asks to run the whole transaction again. It knows the errors of three drivers.
func again(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok { // github.com/jackc/pgx/v5/pgconn
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok { // github.com/go-sql-driver/mysql
		return my.Number == 1213 || my.Number == 1205 || my.Number == 1020
	}
	lite, ok := errors.AsType[*litedriver.Error](err)      // modernc.org/sqlite
	return ok && lite.Code()&0xff == litecodes.SQLITE_BUSY // modernc.org/sqlite/lib
}

// openShop opens an SQLite file and creates the table of sqlonce. Each transaction begins as IMMEDIATE, and waits up to 5 s for
// another one.
func openShop(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, sqlonce.Create(fence.SQLite)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// rebound replaces the placeholders of PostgreSQL by those of MySQL.
type rebound struct{ fence.Tx }

var placeholder = regexp.MustCompile(`\$\d`)

func (r rebound) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return r.Tx.ExecContext(ctx, placeholder.ReplaceAllString(query, "?"), args...)
}

func (r rebound) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return r.Tx.QueryRowContext(ctx, placeholder.ReplaceAllString(query, "?"), args...)
}

// The recipes of docs/sql.md sell each unit once, on each database that they support. The control
// without a lock sells too many.
func TestRecipes(t *testing.T) {
	const buyers, each, units = 16, 6, 30
	unlocked := func(ctx context.Context, tx fence.Tx, item int64) error { // the control
		var n int64
		if err := tx.QueryRowContext(ctx, `SELECT units FROM stock WHERE item = $1`, item).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errSoldOut
		}
		time.Sleep(time.Millisecond)
		_, err := tx.ExecContext(ctx, `UPDATE stock SET units = $1 WHERE item = $2`, n-1, item)
		return err
	}
	onEach(t, func(t *testing.T, s *server) {
		for _, c := range []struct {
			name    string
			sell    func(context.Context, fence.Tx, int64) error
			missing *server
		}{
			{"one statement", sell, nil},
			{"row lock", sellLocked, sqlite}, // a transaction that begins as IMMEDIATE excludes other writers
			{"advisory lock", sellNamed, nil},
			{"version", sellVersioned, nil},
			{"no lock", unlocked, sqlite},
		} {
			if c.missing == s || c.name == "advisory lock" && s != postgres {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				db := s.open(t)
				exec1(t, db, "CREATE TABLE stock (item bigint PRIMARY KEY, units bigint NOT NULL, version bigint NOT NULL)")
				exec1(t, db, fmt.Sprintf("INSERT INTO stock VALUES (1, %d, 0)", units))
				var sold atomic.Int64
				var all sync.WaitGroup
				for range buyers {
					all.Go(func() {
						for range each {
							err := retry(t.Context(), func(ctx context.Context) error {
								return inTx(ctx, db, &sql.TxOptions{Isolation: s.levels()[0]}, func(tx *sql.Tx) error {
									if s == mariadb {
										return c.sell(ctx, rebound{tx}, 1)
									}
									return c.sell(ctx, tx, 1)
								})
							})
							switch {
							case err == nil:
								sold.Add(1)
							case !errors.Is(err, errSoldOut):
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				switch n := sold.Load(); {
				case c.name == "no lock" && n <= units:
					t.Errorf("inconclusive: the control sold %d of %d units", n, units)
				case c.name != "no lock" && n != units:
					t.Errorf("%d of %d units were sold", n, units)
				}
			})
		}
	})
}

// In the shop of docs/sql.md one of eight transactions at the same time runs, and the others wait
// and replay.
func TestRecipeShop(t *testing.T) {
	db, err := openShop(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var runs atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
				out, err := sqlonce.Do(t.Context(), sqlonce.SQLite(tx), "k", sqlonce.Options{}, nothing)
				if out == guard.Ran {
					runs.Add(1)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// Without a busy_timeout the second writer gets SQLITE_BUSY, for which again returns true.
func TestAgainSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	shop, err := openShop(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shop.Close() }()
	hasty, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hasty.Close() }()
	begin(t.Context(), t, shop, sql.LevelDefault)
	if _, err := hasty.BeginTx(t.Context(), nil); !again(err) || again(errFail) {
		t.Errorf("a second writer: %v", err)
	}
}
