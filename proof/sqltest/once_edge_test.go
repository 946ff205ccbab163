//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// waitTime bounds each wait of these tests, so that a defect makes them fail instead of hang.
const waitTime = 20 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	t.Cleanup(cancel)
	return ctx
}

func begin(ctx context.Context, t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// record returns the record of key, or nil without a row or a record.
func (s *server) record(t *testing.T, db *sql.DB, key string) (record []byte) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), s.sql("SELECT record FROM holdfast_once WHERE name = ?"), []byte(key)).Scan(&record)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return record
}

// Clear waits for the transaction that has the key. It reports whether a row was committed, and
// leaves no row.
// Shows: Q7
func TestOnceClearWaits(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		for _, commit := range []bool{true, false} {
			ctx := bounded(t)
			first := begin(ctx, t, db, sql.LevelReadCommitted)
			if _, err := sqlonce.Do(ctx, s.once(first), "k", sqlonce.Options{}, nothing); err != nil {
				t.Fatal(err)
			}
			cleared := make(chan error, 1)
			go func() {
				cleared <- inTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx *sql.Tx) error {
					existed, err := sqlonce.Clear(ctx, s.once(tx), "k")
					if err == nil && existed != commit {
						err = fmt.Errorf("existed is %v", existed)
					}
					return err
				})
			}()
			s.awaitBlocked(t)
			end := first.Rollback
			if commit {
				end = first.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if err := <-cleared; err != nil {
				t.Errorf("commit %v: %v", commit, err)
			}
			if out, err := s.do(ctx, db, nil, "k", nil); err != nil || out != guard.Ran {
				t.Errorf("after Clear, commit %v: %v, %v", commit, out, err)
			}
			exec1(t, db, "DELETE FROM holdfast_once")
		}
	})
}

// Clear reports no row for a key without one, and removes the row of its own transaction.
// Shows: Q7
func TestOnceClear(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		err := inTx(ctx, db, nil, func(tx *sql.Tx) error {
			one := s.once(tx)
			for want, prepare := range map[bool]func() error{
				false: func() error { return nil },
				true: func() error {
					_, err := sqlonce.Do(ctx, one, "k", sqlonce.Options{}, nothing)
					return err
				},
			} {
				err := prepare()
				if err != nil {
					return err
				}
				existed, err := sqlonce.Clear(ctx, one, "k")
				if err != nil || existed != want {
					t.Errorf("existed %v, want %v, %v", existed, want, err)
				}
				if status, err := sqlonce.Lookup(ctx, one, "k"); err != nil || !status.At.IsZero() {
					t.Errorf("%+v, %v", status, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The age of a row does not depend on the time zone of the server. In spring and autumn it is right
// on both sides of the clock change, also in the hour that occurs twice.
// Shows: Q10
func TestOnceDaylightSaving(t *testing.T) {
	s := mariadb.need(t)
	db := s.openEffects(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	offset := func(at time.Time) (hours int) {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET timestamp = %d", at.Unix())); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())").Scan(&hours); err != nil {
			t.Fatal(err)
		}
		return hours
	}
	within := func(fn func(one sqlonce.Tx)) {
		tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		fn(s.once(tx))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]time.Time{
		"spring": time.Date(2025, time.March, 30, 1, 0, 0, 0, time.UTC),
		"autumn": time.Date(2025, time.October, 26, 1, 0, 0, 0, time.UTC),
	} {
		before, after := change.Add(-10*time.Minute), change.Add(10*time.Minute)
		if offset(before) == offset(after) {
			t.Fatalf("inconclusive: the clock of the server does not change in %s", name)
		}
		for key, at := range map[string]time.Time{"before": before, "after": after} {
			offset(at)
			within(func(one sqlonce.Tx) {
				if _, err := sqlonce.Do(t.Context(), one, key, sqlonce.Options{}, nothing); err != nil {
					t.Error(err)
				}
				if status, err := sqlonce.Lookup(t.Context(), one, key); err != nil || !status.At.Equal(at) {
					t.Errorf("%s: %s is at %v, want %v, %v", name, key, status.At, at, err)
				}
			})
		}
		offset(after) // "before" is 20 minutes old, and "after" is new
		within(func(one sqlonce.Tx) {
			for _, step := range []struct {
				older time.Duration
				want  int64
			}{{21 * time.Minute, 0}, {19 * time.Minute, 1}} {
				if n, err := sqlonce.Purge(t.Context(), one, step.older, 10); err != nil || n != step.want {
					t.Errorf("%s: %d rows are older than %v, want %d, %v", name, n, step.older, step.want, err)
				}
			}
		})
		exec1(t, db, "DELETE FROM holdfast_once")
	}
}

// Calls during Purge finish, and their rows are not deleted. If Purge runs at READ COMMITTED, a
// call for a new key does not wait. Purge skips the row of an open transaction.
// Shows: Q9
func TestOncePurgeDuringCalls(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			t.Run(level.String(), func(t *testing.T) {
				db := s.openEffects(t)
				ctx := bounded(t)
				for _, key := range []string{"a", "b", "c"} {
					if _, err := s.do(ctx, db, nil, key, nil); err != nil {
						t.Fatal(err)
					}
				}
				old := "UPDATE holdfast_once SET at = at - " + map[bool]string{true: "interval '1 hour'", false: "3600000000"}[s == postgres]
				exec1(t, db, old)
				running := func() error { return nil }
				if s != sqlite { // SQLite has one writer
					tx := begin(ctx, t, db, sql.LevelReadCommitted)
					if _, err := sqlonce.Do(ctx, s.once(tx), "running", sqlonce.Options{}, nothing); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.ExecContext(ctx, s.sql(old+" WHERE name = ?"), []byte("running")); err != nil {
						t.Fatal(err)
					}
					running = tx.Commit
				}
				purge := begin(ctx, t, db, level)
				if n, err := sqlonce.Purge(ctx, s.once(purge), 30*time.Minute, 10); err != nil || n != 3 {
					t.Fatalf("%d rows were purged, %v", n, err)
				}
				do := func(key string) chan error {
					done := make(chan error, 1)
					go func() {
						for {
							out, err := s.do(ctx, db, nil, key, nil)
							if again(err) {
								continue
							}
							if err == nil && out != guard.Ran {
								err = fmt.Errorf("outcome %v", out)
							}
							done <- err
							return
						}
					}()
					return done
				}
				if s != sqlite && level == sql.LevelReadCommitted {
					if err := <-do("at once"); err != nil {
						t.Errorf("a new key: %v", err)
					}
				}
				purged, later := do("b"), do("new")
				if s != sqlite {
					s.awaitBlocked(t)
				}
				if err := errors.Join(purge.Commit(), running(), <-purged, <-later); err != nil {
					t.Error(err)
				}
				for _, key := range []string{"b", "new", "running"} {
					if s.record(t, db, key) == nil && (key != "running" || s != sqlite) {
						t.Errorf("the row of %q was deleted", key)
					}
				}
			})
		}
	})
}

// Six instances that start at the same time create the tables together, through database/sql and
// pgx. Create does not wait for an open transaction that has a row.
// Shows: Q13
func TestCreateTogether(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db, dsn := s.openAs(t, "")
		create := func(ctx context.Context, text string) error {
			_, err := db.ExecContext(ctx, text)
			return err
		}
		creators := []func(context.Context, string) error{create, create}
		if s == postgres {
			pool, err := pgxpool.New(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			creators[1] = func(ctx context.Context, text string) error {
				_, err := pool.Exec(ctx, text)
				return err
			}
		}
		for range 20 {
			exec1(t, db, "DROP TABLE holdfast_once")
			exec1(t, db, "DROP TABLE holdfast_fence")
			ctx := bounded(t)
			done := make(chan error, 6)
			for i := range cap(done) {
				go func() {
					done <- errors.Join(creators[i%2](ctx, sqlonce.Create(s.dialect)), creators[i%2](ctx, s.dialect.Create()))
				}()
			}
			for range cap(done) {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx := bounded(t)
		tx := begin(ctx, t, db, sql.LevelDefault)
		if _, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, nothing); err != nil {
			t.Fatal(err)
		}
		if err := advanceIn(ctx, s, tx); err != nil {
			t.Fatal(err)
		}
		if s == sqlite {
			return // SQLite has one writer
		}
		if err := errors.Join(create(ctx, sqlonce.Create(s.dialect)), create(ctx, s.dialect.Create())); err != nil {
			t.Errorf("Create beside an open transaction: %v", err)
		}
	})
}

func advanceIn(ctx context.Context, s *server, tx *sql.Tx) error {
	return s.dialect.Advance(ctx, tx, hold("k", 1, "a"))
}

// The records of DoValue, of Do and of a result that is too large equal those of guard.OnceValue
// and guard.Once.
// Shows: Q11
func TestOnceGolden(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	golden := map[string]string{
		"value":     "\x01\x01\x04json\x19{\"Payment\":7,\"Amount\":10}",
		"large":     "\x01\x03\x00\x00",
		"no result": "\x01\x01\x04none\x00",
	}
	paid := func(context.Context) (receipt, error) { return receipt{7, 10}, nil }
	for key, o := range map[string]guard.OnceOptions{"value": {}, "large": {MaxResult: 10}} {
		if _, err := guard.OnceValue(t.Context(), locks, key, o, paid); err != nil {
			t.Error(err)
		}
	}
	if _, err := guard.Once(t.Context(), locks, "no result", guard.OnceOptions{}, nothing); err != nil {
		t.Error(err)
	}
	for key, want := range golden {
		seen, err := locks.Inspect(t.Context(), event.KindOnce, key)
		if err != nil || seen.Record == nil || string(seen.Record.Data) != want {
			t.Errorf("guard, %s: %+v, %v", key, seen.Record, err)
		}
	}
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		for key, o := range map[string]sqlonce.Options{"value": {}, "large": {MaxResult: 10}} {
			if _, err := s.value(t.Context(), db, key, o, func(*sql.Tx) (receipt, error) { return receipt{7, 10}, nil }); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.do(t.Context(), db, nil, "no result", nil); err != nil {
			t.Error(err)
		}
		for key, want := range golden {
			if got := string(s.record(t, db, key)); got != want {
				t.Errorf("sqlonce, %s: %q, want %q", key, got, want)
			}
		}
	})
}

// If the row of a call was deleted or belongs to another run, DoValue returns an error and does not
// change the other row. Do does not change it either.
// Shows: Q6
func TestOnceOtherRow(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		insert := map[fence.SQL]string{
			fence.Postgres: "INSERT INTO holdfast_once (name, run, fingerprint, record) VALUES ('k', '0123456789abcdef', '', 'other')",
			fence.MySQL:    "INSERT INTO holdfast_once (name, run, fingerprint, record) VALUES ('k', '0123456789abcdef', '', 'other')",
			fence.SQLite:   "INSERT INTO holdfast_once (name, run, fingerprint, record) VALUES (CAST('k' AS BLOB), CAST('0123456789abcdef' AS BLOB), x'', CAST('other' AS BLOB))",
		}[s.dialect]
		replace := func(tx *sql.Tx, with bool) error {
			if _, err := sqlonce.Clear(ctx, s.once(tx), "k"); err != nil || !with {
				return err
			}
			_, err := tx.ExecContext(ctx, insert)
			return err
		}
		for _, with := range []bool{true, false} {
			tx := begin(ctx, t, db, sql.LevelDefault)
			_, err := sqlonce.DoValue(ctx, s.once(tx), "k", sqlonce.Options{}, func(context.Context) (int, error) { return 1, replace(tx, with) })
			if err == nil || !strings.Contains(err.Error(), "deleted in its transaction") {
				t.Errorf("DoValue, another row %v: %v", with, err)
			}
			_ = tx.Rollback()
		}
		tx := begin(ctx, t, db, sql.LevelDefault)
		_, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, func(context.Context) error { return errors.Join(replace(tx, true), errFail) })
		if !errors.Is(err, errFail) {
			t.Errorf("Do: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := string(s.record(t, db, "k")); got != "other" {
			t.Errorf("Do has changed the record of another run: %q", got)
		}
	})
}

// Do removes its record also if its ctx has ended, because the caller may still commit.
// Shows: Q5
func TestOnceEndedCtx(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		tx := begin(t.Context(), t, db, sql.LevelDefault)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		})
		if err != context.Canceled { //nolint:errorlint // unchanged
			t.Errorf("Do: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.do(t.Context(), db, nil, "k", nil); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("after the commit: %v", err)
		}
	})
}

// stuck is a transaction whose UPDATE returns only when its ctx ends.
type stuck struct{ fence.Tx }

func (s stuck) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if strings.HasPrefix(query, "UPDATE holdfast_once") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Tx.ExecContext(ctx, query, args...)
}

// The removal of the record ends a second after ctx. Its error is joined with that of the function.
func TestOnceRemovalBounded(t *testing.T) {
	s := sqlite.need(t)
	db := s.openEffects(t)
	tx := begin(t.Context(), t, db, sql.LevelDefault)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := sqlonce.Do(ctx, s.once(stuck{tx}), "k", sqlonce.Options{}, func(context.Context) error {
			cancel()
			return errFail
		})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, errFail) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `fails; the row of key "k" still says done, roll back: `) {
			t.Errorf("Do: %v", err)
		}
	case <-time.After(waitTime):
		t.Error("Do does not return")
	}
}

// An error of the function is returned unchanged, also if the transaction has ended or can no
// longer be committed.
func TestOnceErrorUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		for name, spoil := range map[string]func(tx *sql.Tx){
			"nothing": func(*sql.Tx) {},
			"failed statement": func(tx *sql.Tx) {
				if _, err := tx.ExecContext(t.Context(), "SELECT * FROM no_table"); err == nil {
					t.Error("no error")
				}
			},
			"rolled back": func(tx *sql.Tx) { _ = tx.Rollback() },
		} {
			tx := begin(t.Context(), t, db, sql.LevelDefault)
			_, err := sqlonce.Do(t.Context(), s.once(tx), "k", sqlonce.Options{}, func(context.Context) error {
				spoil(tx)
				return errFail
			})
			if err != errFail { //nolint:errorlint // unchanged
				t.Errorf("%s: %v", name, err)
			}
			_ = tx.Rollback()
		}
	})
}

type panickingCodec struct{ badCodec }

func (panickingCodec) Encode(any) ([]byte, error) { panic("codec") }

// The result of a codec that panics is not kept, like that of one that returns an error.
func TestOncePanickingCodec(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		tx := begin(t.Context(), t, db, sql.LevelDefault)
		res, err := sqlonce.DoValue(t.Context(), s.once(tx), "k", sqlonce.Options{Codec: panickingCodec{}}, func(context.Context) (int, error) { return 7, nil })
		if err == nil || !strings.Contains(err.Error(), `codec "bad" panicked: codec`) || res.Outcome != guard.Ran || res.Value != 7 || !res.NotKept {
			t.Errorf("%+v, %v", res, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.value(t.Context(), db, "k", sqlonce.Options{}, nil); !errors.Is(err, guard.ErrNoResult) {
			t.Errorf("replay: %v", err)
		}
	})
}

// A record of a failure is refused, because this package writes none.
func TestOnceFailedRecord(t *testing.T) {
	record, err := idempotency.Content{Ending: idempotency.Failed, Data: []byte("no")}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		if _, err := s.do(t.Context(), db, nil, "k", nil); err != nil {
			t.Fatal(err)
		}
		exec1(t, db, s.sql("UPDATE holdfast_once SET record = ?"), record)
		if out, err := s.do(t.Context(), db, nil, "k", nil); !errors.Is(err, lockcore.ErrRecord) || !errors.Is(err, idempotency.ErrFormat) || out != guard.NotRun {
			t.Errorf("Do: %v, %v", out, err)
		}
		if _, err := s.value(t.Context(), db, "k", sqlonce.Options{}, nil); !errors.Is(err, lockcore.ErrRecord) {
			t.Errorf("DoValue: %v", err)
		}
	})
}

// A transaction that has read before Do still finds a row that was committed since, or must begin
// again. What it reads after Do may be old, so Do comes first.
func TestOnceReadBefore(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		tx := begin(ctx, t, db, sql.LevelRepeatableRead)
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM holdfast_once").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if _, err := s.do(ctx, db, nil, "k", nil); err != nil {
			t.Fatal(err)
		}
		out, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, nothing)
		if s == postgres && !again(err) || s == mariadb && (err != nil || out != guard.Replayed) {
			t.Errorf("%v, %v", out, err)
		}
	})
}

// Settings of the drivers that change the results of a statement or the way it is sent do not
// change the result of a call.
// Shows: Q12
func TestOnceSettings(t *testing.T) {
	for _, c := range []struct {
		s        *server
		settings []string
	}{
		{postgres, []string{"simple_protocol", "exec", "describe_exec", "cache_describe"}},
		{mariadb, []string{"clientFoundRows=true", "interpolateParams=true", "clientFoundRows=true&interpolateParams=true", "parseTime=true&loc=Local", "innodb_snapshot_isolation=ON"}},
	} {
		for _, setting := range c.settings {
			t.Run(setting, func(t *testing.T) {
				s := c.s.need(t)
				if s == postgres {
					setting = " default_query_exec_mode=" + setting
				} else {
					setting = "?" + setting
				}
				db, _ := s.openAs(t, setting)
				exec1(t, db, "CREATE TABLE effect (name varchar(64) NOT NULL)")
				for _, want := range []guard.Outcome{guard.Ran, guard.Replayed, guard.Replayed} {
					if out, err := s.do(t.Context(), db, nil, "do", nil); err != nil || out != want {
						t.Errorf("Do: %v, want %v, %v", out, want, err)
					}
					for _, key := range []string{"value", "k\x00'\\\xff"} {
						o := sqlonce.Options{Fingerprint: []byte("\x00'\\\xff")}
						res, err := s.value(t.Context(), db, key, o, func(*sql.Tx) (receipt, error) { return receipt{1, 2}, nil })
						wantValue := receipt{1, 2}
						if err != nil || res.Outcome != want || res.Value != wantValue {
							t.Errorf("DoValue: %+v, want %v, %v", res, want, err)
						}
					}
				}
				if n := effects(t, db, "do"); n != 1 {
					t.Errorf("%d effects", n)
				}
				if _, err := s.do(t.Context(), db, nil, "failed", func() error { return errFail }); !errors.Is(err, errFail) {
					t.Error(err)
				}
				err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
					one := s.once(tx)
					if status, err := sqlonce.Lookup(t.Context(), one, "value"); err != nil || !status.Done || time.Since(status.At).Abs() > time.Hour {
						t.Errorf("%+v, %v", status, err)
					}
					if n, err := sqlonce.Purge(t.Context(), one, time.Hour, 10); err != nil || n != 0 {
						t.Errorf("%d purged, %v", n, err)
					}
					existed, err := sqlonce.Clear(t.Context(), one, "value")
					if !existed {
						t.Error("no row")
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The largest result fits, also if the driver writes it into the text of the statement and escapes
// each byte.
// Shows: Q12
func TestOnceLargestResult(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		setting := ""
		if s == mariadb {
			setting = "?interpolateParams=true"
		}
		db, _ := s.openAs(t, setting)
		large := strings.Repeat("'", 8_000_000)
		o := sqlonce.Options{MaxResult: len(large), Codec: idempotency.Bytes()}
		for _, want := range []guard.Outcome{guard.Ran, guard.Replayed} {
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
				res, err := sqlonce.DoValue(t.Context(), s.once(tx), strings.Repeat("'", 512), o, func(context.Context) ([]byte, error) { return []byte(large), nil })
				if err == nil && (res.Outcome != want || string(res.Value) != large) {
					t.Errorf("%v, %d bytes", res.Outcome, len(res.Value))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
