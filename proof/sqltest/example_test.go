//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// withdraw runs its transaction again, whole and under the same hold, if the server could not
// serialize it. It returns any other error. After ErrStale a retry does not help: another holder
// has the account.
func withdraw(ctx context.Context, db *sql.DB, hold fence.Hold, amount int64) error {
	for try := 1; ; try++ {
		err := withdrawOnce(ctx, db, hold, amount)
		if try == 10 || !notSerialized(err) {
			return err
		}
	}
}

// withdrawOnce is one transaction: first the fence, then the read, and then the write that depends
// on it.
func withdrawOnce(ctx context.Context, db *sql.DB, hold fence.Hold, amount int64) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := fence.Postgres.Advance(ctx, tx, hold); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE id = 42`).Scan(&balance); err != nil {
		return err
	}
	if balance < amount {
		return fmt.Errorf("account 42 has only %d", balance)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = $1 WHERE id = 42`, balance-amount); err != nil {
		return err
	}
	return tx.Commit()
}

// notSerialized knows the errors of pgx and of lib/pq.
func notSerialized(err error) bool {
	pg, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && (pg.SQLState() == "40001" || pg.SQLState() == "40P01")
}

// The example in the documentation of package fence is the code above.
func TestExampleIsTheSame(t *testing.T) {
	source := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(b), "// withdraw runs")
		text, _, _ = strings.Cut(text, "\n}\n\n// notSerialized")
		_, last, _ := strings.Cut(string(b), "// notSerialized knows")
		last, _, _ = strings.Cut(last, "\n}\n")
		return text + last
	}
	if here, there := source("example_test.go"), source("../../fence/example_sql_test.go"); here != there || len(here) < 1000 {
		t.Errorf("%s\nbut in the doc\n%s", here, there)
	}
}

// If the server cannot serialize the example, it runs again and reads what the hold before has
// written. An older hold is refused.
func TestExample(t *testing.T) {
	s := postgres.need(t)
	db := s.open(t)
	exec1(t, db, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	exec1(t, db, "INSERT INTO accounts VALUES (42, 100)")
	if err := withdraw(t.Context(), db, hold("account:42", 1, "a"), 10); err != nil {
		t.Fatal(err)
	}
	if err := meets(t, s, db, hold("account:42", 2, "b"), hold("account:42", 3, "c"), withdrawOnce); !notSerialized(err) {
		t.Errorf("inconclusive: without the loop %v", err)
	}
	if err := meets(t, s, db, hold("account:42", 4, "d"), hold("account:42", 5, "e"), withdraw); err != nil {
		t.Error(err)
	}
	if err := withdraw(t.Context(), db, hold("account:42", 4, "d"), 10); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older hold: %v", err)
	}
	var balance int64
	if err := db.QueryRowContext(t.Context(), "SELECT balance FROM accounts").Scan(&balance); err != nil || balance != 40 {
		t.Errorf("balance %d, %v", balance, err)
	}
}

// meets runs a withdrawal of 10 under second, while a transaction of first has the fence. That
// transaction leaves a balance of 50.
func meets(
	t *testing.T, s *server, db *sql.DB, first, second fence.Hold, withdraw func(context.Context, *sql.DB, fence.Hold, int64) error,
) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := s.dialect.Advance(t.Context(), tx, first); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- withdraw(t.Context(), db, second, 10) }()
	s.awaitBlocked(t)
	if _, err := tx.ExecContext(t.Context(), "UPDATE accounts SET balance = 50"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return <-done
}
