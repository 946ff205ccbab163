//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// once returns tx as a transaction of sqlonce.
func (s *server) once(tx fence.Tx) sqlonce.Tx {
	switch s.dialect {
	case fence.MySQL:
		return sqlonce.MySQL(tx)
	case fence.SQLite:
		return sqlonce.SQLite(tx)
	default:
		return sqlonce.Postgres(tx)
	}
}

// openEffects opens a database with a table of effects. The table has no unique column, so a test
// can find a repeated effect.
func (s *server) openEffects(t *testing.T) *sql.DB {
	t.Helper()
	db := s.open(t)
	exec1(t, db, "CREATE TABLE effect (name varchar(64) NOT NULL)")
	return db
}

func effect(ctx context.Context, tx fence.Tx, key string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES ('"+key+"')")
	return err
}

func effects(t *testing.T, db *sql.DB, key string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effect WHERE name = '"+key+"'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// inTx runs fn in a transaction, and commits it if fn returns nil.
func inTx(ctx context.Context, db *sql.DB, o *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// do writes the effect of key once. If fail is not nil, the function returns its result after the
// effect.
func (s *server) do(ctx context.Context, db *sql.DB, o *sql.TxOptions, key string, fail func() error) (out guard.Outcome, err error) {
	err = inTx(ctx, db, o, func(tx *sql.Tx) (err error) {
		out, err = sqlonce.Do(ctx, s.once(tx), key, sqlonce.Options{}, func(ctx context.Context) error {
			if err := effect(ctx, tx, key); err != nil || fail == nil {
				return err
			}
			return fail()
		})
		return err
	})
	return out, err
}

var errFail = errors.New("fails")

// 64 calls of one key at the same time write one effect, at each isolation level, also if some of
// them roll back. Without a rollback MariaDB, SQLite, and PostgreSQL at READ COMMITTED never
// require that a transaction runs again.
// Shows: Q1
func TestOnceContenders(t *testing.T) {
	const calls = 64
	keys := testlevel.Pick(t, 1, 1, 4)
	onEach(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			for _, failing := range []int64{0, 1, 3} {
				t.Run(fmt.Sprintf("%v, %d fail", level, failing), func(t *testing.T) {
					db := s.openEffects(t)
					o := &sql.TxOptions{Isolation: level}
					var repeated, ran atomic.Int64
					for k := range keys {
						key := fmt.Sprint("key", k)
						var runs atomic.Int64
						fail := func() error {
							if runs.Add(1) <= failing {
								return errFail
							}
							return nil
						}
						var all sync.WaitGroup
						for range calls {
							all.Go(func() {
								for {
									out, err := s.do(t.Context(), db, o, key, fail)
									switch {
									case again(err):
										repeated.Add(1)
										continue
									case err != nil && !errors.Is(err, errFail):
										t.Error(err)
									case err == nil && out == guard.Ran:
										ran.Add(1)
									case err == nil && out != guard.Replayed:
										t.Errorf("outcome %v", out)
									}
									return
								}
							})
						}
						all.Wait()
						if n := effects(t, db, key); n != 1 {
							t.Errorf("%s: %d effects", key, n)
						}
					}
					t.Logf("%d transactions of %d were run again", repeated.Load(), calls*keys)
					if ran.Load() != int64(keys) {
						t.Errorf("%d runs of %d keys", ran.Load(), keys)
					}
					if failing == 0 && (s != postgres || level == sql.LevelReadCommitted) && repeated.Load() > 0 {
						t.Errorf("%d transactions were run again without a rollback", repeated.Load())
					}
				})
			}
		}
	})
}

type receipt struct{ Payment, Amount int64 }

// value calls DoValue for key in a separate transaction.
func (s *server) value(ctx context.Context, db *sql.DB, key string, o sqlonce.Options, fn func(tx *sql.Tx) (receipt, error)) (res guard.Result[receipt], err error) {
	err = inTx(ctx, db, nil, func(tx *sql.Tx) (err error) {
		res, err = sqlonce.DoValue(ctx, s.once(tx), key, o, func(context.Context) (receipt, error) { return fn(tx) })
		return err
	})
	return res, err
}

func want(t *testing.T, what string, res guard.Result[receipt], err error, outcome guard.Outcome, v receipt) {
	t.Helper()
	if err != nil || res.Outcome != outcome || res.Value != v || res.Attempt != 1 || res.NotKept {
		t.Errorf("%s: %+v, %v", what, res, err)
	}
}

// A value is returned and replayed, for all keys. A transaction that was rolled back leaves no row
// and no effect.
func TestOnceValue(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		paid := receipt{7, 10}
		pay := func(tx *sql.Tx) (receipt, error) { return paid, effect(t.Context(), tx, "pay") }
		for _, key := range []string{"pay", "K", "k", "k ", "é", "k\x00", "k\xff", strings.Repeat("k", 512)} {
			res, err := s.value(t.Context(), db, key, sqlonce.Options{}, pay)
			want(t, "first", res, err, guard.Ran, paid)
			res, err = s.value(t.Context(), db, key, sqlonce.Options{}, nil)
			want(t, "second", res, err, guard.Replayed, paid)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqlonce.Do(t.Context(), s.once(tx), "rolled back", sqlonce.Options{}, func(ctx context.Context) error { return effect(ctx, tx, "rolled back") }); err != nil {
			t.Error(err)
		}
		_ = tx.Rollback()
		if out, err := s.do(t.Context(), db, nil, "rolled back", nil); err != nil || out != guard.Ran || effects(t, db, "rolled back") != 1 {
			t.Errorf("after a rollback: %v, %v", out, err)
		}
	})
}

// An error, a panic and the end of the ctx leave no row and no effect.
// Shows: Q3
func TestOnceFails(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx, cancel := context.WithCancel(t.Context())
		for name, run := range map[string]func(){
			"error": func() {
				if out, err := s.do(t.Context(), db, nil, "error", func() error { return guard.Final(errFail) }); !errors.Is(err, errFail) || out != guard.Ran {
					t.Errorf("error: %v, %v", out, err)
				}
			},
			"panic": func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				_, _ = s.do(t.Context(), db, nil, "panic", func() error { panic("fn") })
			},
			"ctx": func() {
				if _, err := s.do(ctx, db, nil, "ctx", func() error { cancel(); return nil }); !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) { // database/sql rolls back concurrently
					t.Errorf("ctx: %v", err)
				}
			},
		} {
			run()
			if n := effects(t, db, name); n != 0 {
				t.Errorf("%s: %d effects", name, n)
			}
			if out, err := s.do(t.Context(), db, nil, name, nil); err != nil || out != guard.Ran {
				t.Errorf("after %s: %v, %v", name, out, err)
			}
		}
	})
}

// A transaction that is committed after an error or a panic leaves a row without a record. The key
// neither runs nor replays until Clear.
// Shows: Q5
func TestOnceCommitAfterError(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		do := func(tx *sql.Tx, key string, fn func(ctx context.Context) error) error {
			_, err := sqlonce.Do(t.Context(), s.once(tx), key, sqlonce.Options{}, fn)
			return err
		}
		doValue := func(tx *sql.Tx, key string, fn func(ctx context.Context) error) error {
			_, err := sqlonce.DoValue(t.Context(), s.once(tx), key, sqlonce.Options{}, func(ctx context.Context) (int, error) { return 0, fn(ctx) })
			return err
		}
		for i, run := range []func(*sql.Tx, string, func(context.Context) error) error{do, doValue} {
			for j, fails := range []func(context.Context) error{
				func(context.Context) error { return errFail },
				func(context.Context) error { panic("fn") },
			} {
				key := fmt.Sprint("key", i, j)
				err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
					defer func() { _ = recover() }()
					return errors.Join(effect(t.Context(), tx, key), ignore(run(tx, key, fails)))
				})
				if err != nil {
					t.Fatal(err)
				}
				err = inTx(t.Context(), db, nil, func(tx *sql.Tx) error { return run(tx, key, func(context.Context) error { panic("it runs") }) })
				if !errors.Is(err, lockcore.ErrAbandoned) || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "Do or DoValue") {
					t.Errorf("%s: %v", key, err)
				}
				if a, ok := errors.AsType[*lockcore.AbandonedError](err); !ok || a.Key != key {
					t.Errorf("%s: %v is no *lockcore.AbandonedError", key, err)
				}
				err = inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
					if e, err := sqlonce.Lookup(t.Context(), s.once(tx), key); err != nil || e.Done || e.At.IsZero() {
						t.Errorf("%s: %+v, %v", key, e, err)
					}
					existed, err := sqlonce.Clear(t.Context(), s.once(tx), key)
					if !existed {
						t.Errorf("%s: no row", key)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
				if err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error { return run(tx, key, func(context.Context) error { return nil }) }); err != nil {
					t.Errorf("%s after Clear: %v", key, err)
				}
			}
		}
	})
}

func ignore(error) error { return nil }

// A call inside a call of the same key is an error. After the outer call the same transaction
// replays.
// Shows: Q8
func TestOnceNested(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
			one := s.once(tx)
			out, err := sqlonce.Do(t.Context(), one, "outer", sqlonce.Options{}, func(ctx context.Context) error {
				_, err := sqlonce.Do(ctx, one, "inner", sqlonce.Options{}, func(ctx context.Context) error {
					_, err := sqlonce.Do(ctx, one, "outer", sqlonce.Options{}, func(context.Context) error { panic("it runs") })
					if !errors.Is(err, lockcore.ErrNotRun) {
						t.Errorf("nested: %v", err)
					}
					return nil
				})
				return err
			})
			if err != nil || out != guard.Ran {
				t.Errorf("outer: %v, %v", out, err)
			}
			if out, err = sqlonce.Do(t.Context(), one, "outer", sqlonce.Options{}, nothing); err != nil || out != guard.Replayed {
				t.Errorf("again in the same transaction: %v, %v", out, err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func nothing(context.Context) error { return nil }

// A key and its effect in one savepoint are kept or rolled back together.
// Shows: Q3
func TestOnceSavepoint(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		for _, keep := range []bool{true, false} {
			key := fmt.Sprint("keep ", keep)
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "SAVEPOINT sp")
				if err != nil {
					return err
				}
				if _, err := sqlonce.Do(t.Context(), s.once(tx), key, sqlonce.Options{}, func(ctx context.Context) error { return effect(ctx, tx, key) }); err != nil {
					return err
				}
				end := "ROLLBACK TO SAVEPOINT sp"
				if keep {
					end = "RELEASE SAVEPOINT sp"
				}
				_, err = tx.ExecContext(t.Context(), end)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.do(t.Context(), db, nil, key, nil)
			if err != nil || (out == guard.Replayed) != keep || effects(t, db, key) != 1 {
				t.Errorf("%s: %v, %v, %d effects", key, out, err, effects(t, db, key))
			}
		}
	})
}

// The fingerprint, the codec and the size of a result have the same effects as under guard.Once,
// and the record has the same form.
func TestOnceRecord(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		run := func(_ *sql.Tx) (receipt, error) { return receipt{1, 10}, nil }
		call := func(key string, o sqlonce.Options) error {
			_, err := s.value(t.Context(), db, key, o, run)
			return err
		}
		a, b := sqlonce.Options{Fingerprint: []byte("a")}, sqlonce.Options{Fingerprint: []byte("b")}
		for i, step := range []struct {
			key  string
			o    sqlonce.Options
			want error
		}{
			{"print", a, nil},
			{"print", a, nil},
			{"print", b, lockcore.ErrMismatch},
			{"print", sqlonce.Options{}, nil},
			{"large", sqlonce.Options{MaxResult: 10}, nil},
			{"large", sqlonce.Options{}, guard.ErrNoResult},
			{"codec", sqlonce.Options{}, nil},
			{"codec", sqlonce.Options{Codec: idempotency.Bytes()}, lockcore.ErrRecord},
			{"bad", sqlonce.Options{Codec: badCodec{}}, errFail},
		} {
			if err := call(step.key, step.o); !errors.Is(err, step.want) || err != nil && step.want == nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if out, err := s.do(t.Context(), db, nil, "large", nil); err != nil || out != guard.Replayed {
			t.Errorf("Do of a key whose result was not kept: %v, %v", out, err)
		}
		if _, err := s.do(t.Context(), db, nil, "do", nil); err != nil {
			t.Error(err)
		}
		for key, want := range map[string]string{
			"do":    "\x01\x01\x04none\x00",
			"large": "\x01\x03\x00\x00",
		} {
			var record []byte
			if err := db.QueryRowContext(t.Context(), s.sql("SELECT record FROM holdfast_once WHERE name = ?"), []byte(key)).Scan(&record); err != nil || string(record) != want {
				t.Errorf("%s: %q, %v", key, record, err)
			}
		}
		if _, err := db.ExecContext(t.Context(), s.sql("UPDATE holdfast_once SET record = ?"), []byte("junk")); err != nil {
			t.Fatal(err)
		}
		if err := call("print", a); !errors.Is(err, lockcore.ErrRecord) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("junk: %v", err)
		}
	})
}

type badCodec struct{}

func (badCodec) Name() string               { return "bad" }
func (badCodec) Encode(any) ([]byte, error) { return nil, errFail }
func (badCodec) Decode([]byte, any) error   { return errFail }

// Purge deletes old rows in batches. It skips the row that an open transaction has locked.
// Shows: Q9
func TestOncePurge(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		for i := range 25 {
			if _, err := s.do(ctx, db, nil, fmt.Sprint("old", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		exec1(t, db, map[fence.SQL]string{
			fence.Postgres: "UPDATE holdfast_once SET at = at - interval '1 hour'",
			fence.MySQL:    "UPDATE holdfast_once SET at = at - 3600000000",
			fence.SQLite:   "UPDATE holdfast_once SET at = at - 3600000000",
		}[s.dialect])
		if _, err := s.do(ctx, db, nil, "young", nil); err != nil {
			t.Fatal(err)
		}
		locked := 0
		if s != sqlite { // SQLite has one writer
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if existed, err := sqlonce.Clear(ctx, s.once(tx), "old7"); err != nil || !existed {
				t.Fatal(existed, err)
			}
			locked = 1
		}
		var counts []int64
		for {
			var n int64
			err := inTx(ctx, db, &sql.TxOptions{Isolation: s.levels()[0]}, func(tx *sql.Tx) (err error) {
				n, err = sqlonce.Purge(ctx, s.once(tx), 30*time.Minute, 10)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if counts = append(counts, n); n == 0 {
				break
			}
		}
		if !slices.Equal(counts, []int64{10, 10, 5 - int64(locked), 0}) {
			t.Errorf("batches of %v", counts)
		}
		if out, err := s.do(ctx, db, nil, "young", nil); err != nil || out != guard.Replayed {
			t.Errorf("young: %v, %v", out, err)
		}
		if out, err := s.do(ctx, db, nil, "old3", nil); err != nil || out != guard.Ran {
			t.Errorf("old: %v, %v", out, err)
		}
	})
}

// Bad input is refused with field, value and bound, and nothing runs.
func TestOnceBadInput(t *testing.T) {
	s := sqlite.need(t)
	db := s.openEffects(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	one, runs := s.once(tx), func(context.Context) error { panic("it runs") }
	for i, c := range []struct {
		tx   sqlonce.Tx
		key  string
		o    sqlonce.Options
		want string
	}{
		{sqlonce.Tx{}, "k", sqlonce.Options{}, "tx must"},
		{sqlonce.SQLite(nil), "k", sqlonce.Options{}, "tx must"},
		{sqlonce.SQLite((*sql.Tx)(nil)), "k", sqlonce.Options{}, "tx must"},
		{sqlonce.Pgx(pgx.Tx(nil)), "k", sqlonce.Options{}, "tx must"},
		{sqlonce.Pgx(pgx.Tx((*pgxpool.Tx)(nil))), "k", sqlonce.Options{}, "tx must"},
		{one, "", sqlonce.Options{}, "0 bytes long, must be between 1 and 512"},
		{one, strings.Repeat("k", 513), sqlonce.Options{}, "513 bytes long, must be between 1 and 512"},
		{one, "k", sqlonce.Options{Fingerprint: make([]byte, 65)}, "Options.Fingerprint is 65 bytes long, must be at most 64"},
		{one, "k", sqlonce.Options{MaxResult: -1}, "Options.MaxResult is -1, must be between 0 and 8000000"},
		{one, "k", sqlonce.Options{MaxResult: 8_000_001}, "Options.MaxResult is 8000001, must be between 0 and 8000000"},
		{one, "k", sqlonce.Options{Codec: longCodec{}}, "codec name is 33 bytes long"},
		{one, "k", sqlonce.Options{MaxResult: -1, Fingerprint: make([]byte, 65)}, "sqlonce: not run: Options.Fingerprint is 65 bytes long, must be at most 64; Options.MaxResult is -1,"},
	} {
		if out, err := sqlonce.Do(t.Context(), c.tx, c.key, c.o, runs); err == nil || out != guard.NotRun || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, %v", i, out, err)
		}
	}
	if _, err := sqlonce.Do(t.Context(), one, "k", sqlonce.Options{}, nil); !errors.Is(err, lockcore.ErrNotRun) {
		t.Errorf("no fn: %v", err)
	}
	for _, c := range []struct {
		older time.Duration
		limit int
		want  string
	}{
		{0, 1, "older is 0s, must be between 1s"}, {-time.Hour, 1, "older is -1h"}, {time.Hour, 0, "limit is 0, must be between 1 and 100000"}, {time.Hour, 100_001, "limit is 100001"},
	} {
		if _, err := sqlonce.Purge(t.Context(), one, c.older, c.limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %d: %v", c.older, c.limit, err)
		}
	}
}

type longCodec struct{ badCodec }

func (longCodec) Name() string { return strings.Repeat("c", 33) }

// Without the table Do returns the error of the driver, and no effect is written.
func TestOnceNoTable(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		exec1(t, db, "DROP TABLE holdfast_once")
		_, err := s.do(t.Context(), db, nil, "k", nil)
		if err == nil || errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "holdfast_once") || effects(t, db, "k") != 0 {
			t.Error(err)
		}
	})
}

// pgx and database/sql replay the records of each other.
func TestOncePgx(t *testing.T) {
	s := postgres.need(t)
	db, dsn := s.openAs(t, "")
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	pgxDo := func(key string) (res guard.Result[receipt], err error) {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			return res, err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		res, err = sqlonce.DoValue(t.Context(), sqlonce.Pgx(tx), key, sqlonce.Options{}, func(context.Context) (receipt, error) { return receipt{Payment: 1}, nil })
		if err != nil {
			return res, err
		}
		return res, tx.Commit(t.Context())
	}
	fromSQL := func(_ *sql.Tx) (receipt, error) { return receipt{Payment: 2}, nil }
	res, err := pgxDo("pgx first")
	want(t, "pgx", res, err, guard.Ran, receipt{Payment: 1})
	res, err = s.value(t.Context(), db, "pgx first", sqlonce.Options{}, fromSQL)
	want(t, "database/sql", res, err, guard.Replayed, receipt{Payment: 1})
	res, err = s.value(t.Context(), db, "sql first", sqlonce.Options{}, fromSQL)
	want(t, "database/sql", res, err, guard.Ran, receipt{Payment: 2})
	res, err = pgxDo("sql first")
	want(t, "pgx", res, err, guard.Replayed, receipt{Payment: 2})
}
