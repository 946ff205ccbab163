//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/sqlonce"
)

const costWorkers = 8

// each runs f for n keys with 8 workers, one transaction per key. It repeats a transaction if the
// server requires that, and returns the number of repeats.
func (s *server) each(t *testing.T, db *sql.DB, first, n int, f func(tx *sql.Tx, key string) error) int64 {
	t.Helper()
	var repeated atomic.Int64
	var all sync.WaitGroup
	for w := range costWorkers {
		all.Go(func() {
			for k := first + w; k < first+n; k += costWorkers {
				err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error { return f(tx, fmt.Sprint("key", k)) })
				switch {
				case again(err):
					repeated.Add(1)
					k -= costWorkers
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return repeated.Load()
}

// TestOnceCost compares the time of a transaction with one INSERT, alone and with Do or DoValue
// around it. The three variants alternate in 31 rounds. It logs the median of the ratios with its
// 95 % interval, and fails if the number of effects is wrong or a transaction was run again.
func TestOnceCost(t *testing.T) {
	testlevel.Campaign(t)
	onEach(t, func(t *testing.T, s *server) {
		settings := []string{""}
		if s == mariadb {
			settings = append(settings, "?interpolateParams=true")
		}
		for _, setting := range settings {
			t.Run(setting, func(t *testing.T) { s.cost(t, setting) })
		}
	})
}

func (s *server) cost(t *testing.T, setting string) {
	t.Helper()
	const rounds, keys = 31, 800
	db, _ := s.openAs(t, setting)
	db.SetMaxOpenConns(costWorkers)
	db.SetMaxIdleConns(costWorkers)
	exec1(t, db, "CREATE TABLE effect (name varchar(64) NOT NULL)")
	insert := func(ctx context.Context, tx *sql.Tx, key string) error {
		_, err := tx.ExecContext(ctx, s.sql("INSERT INTO effect VALUES (?)"), key)
		return err
	}
	ways := []struct {
		name   string
		make   func(tx *sql.Tx, key string) error
		ratios []float64
	}{
		{name: "alone", make: func(tx *sql.Tx, key string) error { return insert(t.Context(), tx, key) }},
		{name: "Do", make: func(tx *sql.Tx, key string) error {
			_, err := sqlonce.Do(t.Context(), s.once(tx), key, sqlonce.Options{}, func(ctx context.Context) error { return insert(ctx, tx, key) })
			return err
		}},
		{name: "DoValue", make: func(tx *sql.Tx, key string) error {
			_, err := sqlonce.DoValue(t.Context(), s.once(tx), key, sqlonce.Options{}, func(ctx context.Context) (string, error) {
				return key, insert(ctx, tx, key)
			})
			return err
		}},
	}
	next := 0
	for round := range rounds {
		took := make([]float64, len(ways))
		for turn := range ways {
			i := (round + turn) % len(ways)
			began := time.Now()
			if n := s.each(t, db, next, keys, ways[i].make); n > 0 {
				t.Errorf("%s: %d transactions were run again", ways[i].name, n)
			}
			took[i] = time.Since(began).Seconds()
			next += keys
		}
		for i := range ways {
			ways[i].ratios = append(ways[i].ratios, took[i]/took[0])
		}
	}
	for _, w := range ways[1:] {
		slices.Sort(w.ratios)
		// The 10th and the 22nd of 31 values are the bounds of the 95 % interval of the median.
		t.Logf("%s ÷ the INSERT alone: time %.2f [%.2f, %.2f]", w.name, w.ratios[rounds/2], w.ratios[9], w.ratios[21])
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil || n != next {
		t.Errorf("%d effects of %d, %v", n, next, err)
	}
}

// TestOnceTable fills the table with 500,000 keys, logs its size, and purges them while 8 workers
// call. No row of the workers is purged.
func TestOnceTable(t *testing.T) {
	testlevel.Campaign(t)
	const keys, block, batch = 500_000, 1000, 10_000
	onEach(t, func(t *testing.T, s *server) {
		db, dsn := s.openAs(t, "")
		value := strings.Repeat("v", 200)
		began := time.Now()
		for k := 0; k < keys; k += block {
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
				for i := range block {
					_, err := sqlonce.DoValue(t.Context(), s.once(tx), fmt.Sprintf("order:%012d", k+i), sqlonce.Options{}, func(context.Context) (string, error) { return value, nil })
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		filled := time.Now()
		t.Logf("%d keys in %v; bytes per key: %.0f", keys, filled.Sub(began).Round(time.Second), float64(s.size(t, db, dsn))/keys)
		time.Sleep(time.Second) // the least age that Purge accepts
		done := make(chan struct{})
		var young atomic.Int64
		var all sync.WaitGroup
		for w := range costWorkers {
			all.Go(func() {
				for k := 0; ; k++ {
					select {
					case <-done:
						return
					default:
					}
					key := fmt.Sprintf("young%d:%d", w, k)
					err := inTx(t.Context(), db, nil, func(tx *sql.Tx) error {
						out, err := sqlonce.Do(t.Context(), s.once(tx), key, sqlonce.Options{}, func(context.Context) error { return nil })
						if err == nil && out != guard.Ran {
							t.Errorf("%s: %v", key, out)
						}
						return err
					})
					switch {
					case again(err):
						k--
					case err != nil:
						t.Error(err)
						return
					default:
						young.Add(1)
					}
				}
			})
		}
		var purged, repeated int64
		var took []time.Duration
		for {
			var n int64
			began := time.Now()
			err := inTx(t.Context(), db, nil, func(tx *sql.Tx) (err error) {
				n, err = sqlonce.Purge(t.Context(), s.once(tx), time.Since(filled), batch)
				return err
			})
			if again(err) {
				repeated++
				continue
			}
			if err != nil {
				t.Error(err)
				break
			}
			if n == 0 {
				break
			}
			purged += n
			took = append(took, time.Since(began))
		}
		close(done)
		all.Wait()
		slices.Sort(took)
		var left int64
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM holdfast_once").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if purged != keys || left != young.Load() {
			t.Errorf("%d purged of %d; %d rows are left, %d calls committed meanwhile", purged, keys, left, young.Load())
		}
		if len(took) > 0 {
			t.Logf("Purge: %d batches of %d, median %v, longest %v, run again %d; %d calls committed meanwhile", len(took), batch, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), repeated, young.Load())
		}
	})
}

// size returns the bytes of the table and its indexes.
func (s *server) size(t *testing.T, db *sql.DB, dsn string) (n int64) {
	t.Helper()
	if s == sqlite {
		exec1(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
		file, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	query := "SELECT pg_total_relation_size('holdfast_once')"
	if s == mariadb {
		exec1(t, db, "ANALYZE TABLE holdfast_once")
		query = "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = database() AND table_name = 'holdfast_once'"
	}
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
