//go:build unix

package sqltest_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fence"
)

const first = 1_800_000_000_000_000 // about a token of today

func hold(key string, n int64, id string) fence.Hold {
	return fence.Hold{Key: key, Token: first + n, ID: id}
}

// advance calls Advance in a separate transaction that does nothing else.
func advance(t *testing.T, s *server, db *sql.DB, o *sql.TxOptions, h fence.Hold) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := s.dialect.Advance(t.Context(), tx, h); err != nil {
		return err
	}
	return tx.Commit()
}

// levels returns the isolation levels of s.
func (s *server) levels() []sql.IsolationLevel {
	if s == sqlite {
		return []sql.IsolationLevel{sql.LevelDefault} // SERIALIZABLE
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// Advance accepts a newer hold, and accepts the newest one repeatedly. It refuses an older hold,
// and another hold with an equal token, and the error names the token that was seen. Keys are
// bytes: keys that differ in case, in spaces or in bytes that are not text are different keys.
// Shows: F1
func TestAdvance(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			db := s.open(t)
			keys := []string{"k", "K", "k ", "é", "e\u0301", "k\x00", "k\xff", string(bytes.Repeat([]byte("k"), 512))}
			for _, key := range keys {
				for i, step := range []struct {
					n    int64
					id   string
					seen int64 // 0: accepted
				}{
					{5, "a", 0},
					{5, "a", 0},
					{5, "b", 5},
					{4, "a", 5},
					{5, "A", 5},
					{5, "a ", 5},
					{9, "c", 0},
					{5, "a", 9},
					{9, "c", 0},
					{9, "a", 9},
					{10, "d", 0},
				} {
					h := hold(key, step.n, step.id)
					err := advance(t, s, db, &sql.TxOptions{Isolation: level}, h)
					if step.seen == 0 {
						if err != nil {
							t.Errorf("%v %q step %d: %v", level, key, i, err)
						}
						continue
					}
					var stale *fence.StaleError
					if !errors.As(err, &stale) || *stale != (fence.StaleError{Key: key, Token: h.Token, Seen: first + step.seen}) {
						t.Errorf("%v %q step %d: %v", level, key, i, err)
					}
				}
			}
			var rows int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM holdfast_fence").Scan(&rows); err != nil || rows != len(keys) {
				t.Errorf("%d rows of %d keys, %v", rows, len(keys), err)
			}
		}
	})
}

// The settings of a connection do not change the result. These are how MySQL counts rows, its SQL
// mode, how a transaction begins, and whether arguments are inside the text of a statement.
// Shows: F3
func TestAdvanceSettings(t *testing.T) {
	settings := map[*server][]string{
		mariadb:  {"?clientFoundRows=true", "?interpolateParams=true", "?clientFoundRows=true&sql_mode='SIMULTANEOUS_ASSIGNMENT'", "?sql_mode=''"},
		sqlite:   {"&_txlock=deferred"},
		postgres: {" default_query_exec_mode=exec", " default_query_exec_mode=simple_protocol"},
	}
	onEach(t, func(t *testing.T, s *server) {
		for _, setting := range settings[s] {
			db, _ := s.openAs(t, setting)
			for i, step := range []struct {
				n     int64
				id    string
				stale bool
			}{{5, "a", false}, {5, "a", false}, {5, "b", true}, {4, "a", true}, {6, "b", false}, {6, "b", false}, {5, "a", true}} {
				if err := advance(t, s, db, nil, hold("k", step.n, step.id)); errors.Is(err, fence.ErrStale) != step.stale || (err != nil && !step.stale) {
					t.Errorf("%s step %d: %v", setting, i, err)
				}
			}
		}
	})
}

// A transaction that was rolled back has advanced nothing.
func TestAdvanceRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.open(t)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.dialect.Advance(t.Context(), tx, hold("k", 9, "a")); err != nil {
			t.Error(err)
		}
		_ = tx.Rollback()
		if err := advance(t, s, db, nil, hold("k", 5, "b")); err != nil {
			t.Errorf("after a rollback: %v", err)
		}
	})
}

// While a transaction of one hold runs, that of another hold waits, at each level and also for a
// new key. After that an older hold is refused. A newer hold is accepted, if necessary in another
// try, and reads what the first one wrote.
// Shows: F3
func TestAdvanceWaits(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			for _, known := range []bool{true, false} {
				for _, older := range []bool{true, false} {
					t.Run(fmt.Sprintf("%v, known %v, older %v", level, known, older), func(t *testing.T) {
						waits(t, s, &sql.TxOptions{Isolation: level}, known, older)
					})
				}
			}
		}
	})
}

func waits(t *testing.T, s *server, o *sql.TxOptions, known, older bool) {
	t.Helper()
	db := s.open(t)
	counterTables(t, db)
	if known {
		if err := advance(t, s, db, o, hold("k", 1, "z")); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := s.dialect.Advance(t.Context(), tx, hold("k", 5, "a")); err != nil {
		t.Fatal(err)
	}
	second := hold("k", 6, "b")
	if older {
		second = hold("k", 4, "b")
	}
	type result struct {
		value int64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, _, err := increment(t.Context(), s, db, o, second)
		done <- result{v, err}
	}()
	s.awaitBlocked(t)
	if _, err := tx.ExecContext(t.Context(), "UPDATE counter SET value = 10"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	switch r := <-done; {
	case older && !errors.Is(r.err, fence.ErrStale):
		t.Errorf("an older hold: %v", r.err)
	case !older && (r.err != nil || r.value != 11):
		t.Errorf("a newer hold counted to %d, %v", r.value, r.err)
	}
}

// awaitBlocked waits until a transaction waits for a lock.
func (s *server) awaitBlocked(t *testing.T) {
	t.Helper()
	query := "SELECT count(*) FROM pg_locks WHERE NOT granted"
	if s.dialect == fence.MySQL {
		query = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(150 * time.Millisecond) { // InnoDB refreshes this table only if it was not read for 100 ms
		var n int
		if err := s.admin.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no transaction waits for a lock")
}

// The text of Text also works without database/sql: with pgx alone, one affected row means
// accepted, and none means refused.
func TestTextWithPgx(t *testing.T) {
	s := postgres.need(t)
	_, dsn := s.openAs(t, "")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for i, step := range []struct {
		n    int64
		id   string
		want int64
	}{{5, "a", 1}, {5, "a", 1}, {5, "b", 0}, {4, "c", 0}, {6, "b", 1}} {
		text, args := s.dialect.Text(hold("k", step.n, step.id))
		if tag, err := conn.Exec(t.Context(), text, args...); err != nil || tag.RowsAffected() != step.want {
			t.Errorf("step %d: %v, %v", i, tag, err)
		}
	}
}
