//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// Each test shows the harm of a mistake that an example of package sqlonce describes.

// An effect that is written through db stays after a rollback, so the next call repeats it.
func TestOnceIncorrectOtherTransaction(t *testing.T) {
	onServers(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		for _, end := range []error{errFail, nil} {
			err := inTx(ctx, db, nil, func(tx *sql.Tx) error {
				_, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, func(ctx context.Context) error {
					_, err := db.ExecContext(ctx, "INSERT INTO effect VALUES ('k')")
					return errors.Join(err, end)
				})
				return err
			})
			if !errors.Is(err, end) {
				t.Error(err)
			}
		}
		if n := effects(t, db, "k"); n != 2 {
			t.Errorf("%d effects, want 2; is the rule still needed?", n)
		}
	})
}

// A function clears its own key. Do returns Ran, and the key runs again.
func TestOnceIncorrectRowDisappears(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		ctx := bounded(t)
		for range 2 {
			err := inTx(ctx, db, nil, func(tx *sql.Tx) error {
				out, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, func(ctx context.Context) error {
					_, err := sqlonce.Clear(ctx, s.once(tx), "k")
					return errors.Join(err, effect(ctx, tx, "k"))
				})
				if out != guard.Ran {
					t.Errorf("outcome %v", out)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if n := effects(t, db, "k"); n != 2 {
			t.Errorf("%d effects, want 2; is the rule still needed?", n)
		}
	})
}

// A function hides error 1213. MariaDB has rolled the transaction back, and commits the later
// statements one by one.
func TestOnceIncorrectHiddenError(t *testing.T) {
	s := mariadb.need(t)
	db := s.openEffects(t)
	exec1(t, db, "CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(64) NOT NULL DEFAULT '')")
	exec1(t, db, "INSERT INTO pair (id, n) VALUES (1, 0), (2, 0)")
	ctx := bounded(t)
	other := begin(ctx, t, db, sql.LevelReadCommitted)
	for range 20 { // the server rolls back the transaction that has changed less
		if _, err := other.ExecContext(ctx, "INSERT INTO effect VALUES ('weight')"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.ExecContext(ctx, "UPDATE pair SET n = 1 WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	tx := begin(ctx, t, db, sql.LevelReadCommitted)
	out, err := sqlonce.Do(ctx, s.once(tx), "k", sqlonce.Options{}, func(ctx context.Context) error {
		if _, err := tx.ExecContext(ctx, "UPDATE pair SET n = 2 WHERE id = 1"); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() {
			_, err := other.ExecContext(ctx, "UPDATE pair SET n = 1 WHERE id = 1")
			done <- errors.Join(err, other.Commit())
		}()
		s.awaitBlocked(t)
		if _, err := tx.ExecContext(ctx, "UPDATE pair SET n = 2 WHERE id = 2"); !again(err) {
			t.Errorf("inconclusive: no deadlock, %v", err)
		}
		return errors.Join(<-done, effect(ctx, tx, "k"))
	})
	if err = errors.Join(err, tx.Commit()); err != nil || out != guard.Ran {
		t.Errorf("%v, %v", out, err)
	}
	if n := effects(t, db, "k"); n != 1 || s.record(t, db, "k") != nil {
		t.Errorf("%d effects, record %q; is the rule still needed?", n, s.record(t, db, "k"))
	}
}

// A refusal that is an error is not recorded. A refusal that is a value is.
func TestOnceIncorrectRefusal(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		money := 0
		asError := func(*sql.Tx) (receipt, error) {
			if money < 10 {
				return receipt{}, errFail
			}
			return receipt{7, 10}, nil
		}
		asValue := func(*sql.Tx) (receipt, error) { return receipt{7, int64(money)}, nil }
		_, err := s.value(t.Context(), db, "error", sqlonce.Options{}, asError)
		if !errors.Is(err, errFail) {
			t.Error(err)
		}
		refused, err := s.value(t.Context(), db, "value", sqlonce.Options{}, asValue)
		want(t, "refused", refused, err, guard.Ran, receipt{7, 0})
		money = 10
		res, err := s.value(t.Context(), db, "error", sqlonce.Options{}, asError)
		want(t, "as an error", res, err, guard.Ran, receipt{7, 10})
		res, err = s.value(t.Context(), db, "value", sqlonce.Options{}, asValue)
		want(t, "as a value", res, err, guard.Replayed, receipt{7, 0})
	})
}
