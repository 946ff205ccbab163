//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// A transaction reads before Advance, and another hold writes in between. At REPEATABLE READ
// PostgreSQL requires that the transaction runs again, and so does MariaDB with
// innodb_snapshot_isolation. Without that setting MariaDB returns no error, and the read value is
// older than the last write. Therefore Advance comes first.
// Shows: B2
func TestReadBeforeAdvance(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		db := s.open(t)
		counterTables(t, db)
		o := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
		if err := advance(t, s, db, o, hold("k", 1, "z")); err != nil {
			t.Fatal(err)
		}
		settings := []string{""}
		if s.dialect == fence.MySQL {
			settings = []string{"SET innodb_snapshot_isolation = OFF", "SET innodb_snapshot_isolation = ON"}
		}
		for i, setting := range settings {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.ExecContext(t.Context(), setting); err != nil && setting != "" {
				t.Fatal(err)
			}
			tx, err := conn.BeginTx(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			read := func() (v int64) {
				if err := tx.QueryRowContext(t.Context(), "SELECT value FROM counter").Scan(&v); err != nil {
					t.Error(err)
				}
				return v
			}
			before := read()
			if _, _, err := increment(t.Context(), s, db, o, hold("k", int64(10*i+10), "a")); err != nil {
				t.Fatal(err)
			}
			err = s.dialect.Advance(t.Context(), tx, hold("k", int64(10*i+11), "b"))
			silent := s.dialect == fence.MySQL && i == 0
			switch {
			case silent && (err != nil || read() != before):
				t.Errorf("%s: %v; is the rule still needed?", setting, err)
			case !silent && !again(err):
				t.Errorf("%s: %v", setting, err)
			}
			_ = tx.Rollback()
		}
	})
}

// A transaction reads before Advance, while its hold is the newest one. After a newer hold has
// advanced, Advance refuses the transaction, or the server requires that it runs again.
// Shows: F3
func TestStaleAfterReading(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			db := s.open(t)
			o := &sql.TxOptions{Isolation: level}
			if err := advance(t, s, db, o, hold("k", 5, "a")); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			var token int64
			query := "SELECT max(token) FROM holdfast_fence"
			if level == sql.LevelSerializable && s.dialect == fence.MySQL {
				query = "SELECT 1" // at this level a read would lock the row
			}
			if err := tx.QueryRowContext(t.Context(), query).Scan(&token); err != nil {
				t.Fatal(err)
			}
			if err := advance(t, s, db, o, hold("k", 6, "b")); err != nil {
				t.Fatal(err)
			}
			if err := s.dialect.Advance(t.Context(), tx, hold("k", 5, "a")); !errors.Is(err, fence.ErrStale) && !again(err) {
				t.Errorf("%v: %v", level, err)
			}
		}
	})
}

// With innodb_snapshot_isolation, the default since MariaDB 11.6, the results are those of
// TestWriters.
func TestWritersSnapshotIsolation(t *testing.T) {
	s := mariadb.need(t)
	db, _ := s.openAs(t, "?innodb_snapshot_isolation=ON")
	counterTables(t, db)
	var drawn atomic.Int64
	sum := write(t, s, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func() fence.Hold {
		n := drawn.Add(1)
		return hold("k", 100+n-rand.Int64N(writers), fmt.Sprint(n))
	})
	t.Logf("%d accepted, %d refused, %d run again", sum.accepted.Load(), sum.refused.Load(), sum.retried.Load())
	if sum.accepted.Load() < 100 || sum.refused.Load() < 100 {
		t.Error("inconclusive: fewer than 100 were accepted or refused")
	}
	judge(t, db, sum.accepted.Load())
}

// Eight holds advance a key without a row at the same time, and half of them roll back. The row is
// that of the newest hold that committed.
// Shows: F3
func TestFirstOfAKey(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			db := s.open(t)
			var retried, refused atomic.Int64
			for k := range 20 {
				key := fmt.Sprint("key", k)
				var newest atomic.Int64
				var wg sync.WaitGroup
				for _, n := range rand.Perm(writers) {
					wg.Go(func() {
						h := hold(key, int64(n), fmt.Sprint(n))
						for try := range tries {
							err := commitOrNot(t.Context(), s, db, &sql.TxOptions{Isolation: level}, h, n%2 == 0)
							if again(err) && try < tries-1 {
								retried.Add(1)
								continue
							}
							if errors.Is(err, fence.ErrStale) {
								refused.Add(1)
							} else if err != nil {
								t.Error(err)
							} else if n%2 == 0 {
								for old := newest.Load(); old < h.Token && !newest.CompareAndSwap(old, h.Token); old = newest.Load() {
								}
							}
							return
						}
					})
				}
				wg.Wait()
				var token int64
				query := s.sql("SELECT token FROM holdfast_fence WHERE name = ?")
				if err := db.QueryRowContext(t.Context(), query, []byte(key)).Scan(&token); err != nil || token != newest.Load() {
					t.Errorf("%v: %s has token %d, want %d, %v", level, key, token, newest.Load(), err)
				}
			}
			t.Logf("%v: %d refused, %d run again", level, refused.Load(), retried.Load())
		}
	})
}

func commitOrNot(ctx context.Context, s *server, db *sql.DB, o *sql.TxOptions, h fence.Hold, commit bool) error {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := s.dialect.Advance(ctx, tx, h); err != nil || !commit {
		return err
	}
	return tx.Commit()
}
