//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/sqlonce"
)

// pay books a payment once, and returns the same receipt each time. It runs its transaction again
// if the server could not serialize it.
func pay(ctx context.Context, db *sql.DB, payment, account, amount int64) (receipt, error) {
	for try := 1; ; try++ {
		r, err := payOnce(ctx, db, payment, account, amount)
		if try == 10 || !notSerialized(err) {
			return r, err
		}
	}
}

// payOnce is one transaction: first the key, then the effect.
func payOnce(ctx context.Context, db *sql.DB, payment, account, amount int64) (receipt, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return receipt{}, err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	key := fmt.Sprint("payment:", payment)
	res, err := sqlonce.DoValue(ctx, sqlonce.Postgres(tx), key, sqlonce.Options{}, func(ctx context.Context) (receipt, error) {
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - $1 WHERE id = $2`, amount, account)
		return receipt{payment, amount}, err
	})
	if err != nil {
		return receipt{}, err
	}
	return res.Value, tx.Commit()
}

// The example of package sqlonce is the code above.
func TestOnceExampleIsTheSame(t *testing.T) {
	source := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(b), "// pay books")
		text, _, _ = strings.Cut(text, "\treturn res.Value, tx.Commit()\n")
		return text
	}
	if here, there := source("once_example_test.go"), source("../../sqlonce/example_test.go"); here != there || len(here) < 1000 {
		t.Errorf("%s\nbut in the package\n%s", here, there)
	}
}

// Repeats of a payment get the receipt of the first one, also if the server could not serialize
// them at first.
func TestOnceExample(t *testing.T) {
	s := postgres.need(t)
	db := s.open(t)
	exec1(t, db, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	exec1(t, db, "INSERT INTO accounts VALUES (42, 100)")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if r, err := pay(t.Context(), db, 7, 42, 10); err != nil || r != (receipt{7, 10}) {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	all.Wait()
	var balance int64
	if err := db.QueryRowContext(t.Context(), "SELECT balance FROM accounts").Scan(&balance); err != nil || balance != 90 {
		t.Errorf("balance %d, %v", balance, err)
	}
}
