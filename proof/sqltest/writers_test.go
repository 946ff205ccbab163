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

const (
	writers = 8
	each    = 150 // transactions of each writer
	tries   = 100 // of one transaction
)

// increment reads the counter, adds one and writes it, in separate statements like a handler. It
// runs the transaction again if the server requires that.
func increment(ctx context.Context, s *server, db *sql.DB, o *sql.TxOptions, h fence.Hold) (value int64, retried int, err error) {
	for try := range tries {
		if value, err = incrementOnce(ctx, s, db, o, h); !again(err) {
			return value, try, err
		}
	}
	return 0, tries, fmt.Errorf("no success after %d tries: %w", tries, err)
}

func incrementOnce(ctx context.Context, s *server, db *sql.DB, o *sql.TxOptions, h fence.Hold) (value int64, err error) {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if h != (fence.Hold{}) {
		if err := s.dialect.Advance(ctx, tx, h); err != nil {
			return 0, err
		}
	}
	if err := tx.QueryRowContext(ctx, "SELECT value FROM counter").Scan(&value); err != nil {
		return 0, err
	}
	value++
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET value = %d", value)); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO log VALUES (%d, %d, '%s')", value, h.Token, h.ID)); err != nil {
		return 0, err
	}
	return value, tx.Commit()
}

func counterTables(t *testing.T, db *sql.DB) {
	t.Helper()
	exec1(t, db, "CREATE TABLE counter (value bigint NOT NULL)")
	exec1(t, db, "INSERT INTO counter VALUES (0)")
	exec1(t, db, "CREATE TABLE log (value bigint NOT NULL, token bigint NOT NULL, hold varchar(64) NOT NULL)")
}

type tally struct{ accepted, refused, retried atomic.Int64 }

// write runs all writers at the same time, each transaction under the hold that next returns.
func write(t *testing.T, s *server, db *sql.DB, o *sql.TxOptions, next func() fence.Hold) *tally {
	t.Helper()
	sum := new(tally)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				_, n, err := increment(t.Context(), s, db, o, next())
				sum.retried.Add(int64(n))
				switch {
				case err == nil:
					sum.accepted.Add(1)
				case errors.Is(err, fence.ErrStale):
					sum.refused.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return sum
}

// Eight writers write at the same time with tokens out of order, and some tokens belong to two
// holds. At each level the tokens of accepted writes never decrease, each token is accepted for one
// hold only, and no accepted increment is lost.
// Shows: F1
func TestWriters(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		for _, level := range s.levels() {
			t.Run(level.String(), func(t *testing.T) {
				db := s.open(t)
				counterTables(t, db)
				var drawn atomic.Int64
				sum := write(t, s, db, &sql.TxOptions{Isolation: level}, func() fence.Hold {
					n := drawn.Add(1)
					return hold("k", 100+n-rand.Int64N(writers), fmt.Sprint(n)) // grows, but not in order, and several holds have the same token
				})
				t.Logf("%d accepted, %d refused, %d run again", sum.accepted.Load(), sum.refused.Load(), sum.retried.Load())
				if sum.accepted.Load() < 100 || sum.refused.Load() < 100 {
					t.Error("inconclusive: fewer than 100 were accepted or refused")
				}
				judge(t, db, sum.accepted.Load())
			})
		}
	})
}

func judge(t *testing.T, db *sql.DB, accepted int64) {
	t.Helper()
	var value int64
	if err := db.QueryRowContext(t.Context(), "SELECT value FROM counter").Scan(&value); err != nil || value != accepted {
		t.Errorf("counted to %d with %d increments, %v", value, accepted, err)
	}
	rows, err := db.QueryContext(t.Context(), "SELECT value, token, hold FROM log ORDER BY value")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var last, want int64
	var by string
	for rows.Next() {
		var value, token int64
		var id string
		if err := rows.Scan(&value, &token, &id); err != nil {
			t.Fatal(err)
		}
		if want++; value != want {
			t.Fatalf("increment %d is missing or repeated", want)
		}
		if token < last || token == last && id != by {
			t.Errorf("token %d of %s after %d of %s", token, id, last, by)
		}
		last, by = token, id
	}
	if err := rows.Err(); err != nil || want != accepted {
		t.Errorf("%d of %d increments in the log, %v", want, accepted, err)
	}
}

// Without the fence increments are lost, so TestWriters can fail.
func TestWritersUnfenced(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		db := s.open(t)
		counterTables(t, db)
		sum := write(t, s, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func() fence.Hold { return fence.Hold{} })
		var value int64
		if err := db.QueryRowContext(t.Context(), "SELECT value FROM counter").Scan(&value); err != nil {
			t.Fatal(err)
		}
		if value >= sum.accepted.Load() {
			t.Errorf("inconclusive: none of %d increments was lost", value)
		}
		t.Logf("%d of %d increments were lost", sum.accepted.Load()-value, sum.accepted.Load())
	})
}
