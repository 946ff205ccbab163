package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
)

// charge is the function that guard.Exclusive runs for account:42.
func charge(ctx context.Context, db *sql.DB, amount int64) error {
	hold, err := fence.Of(ctx, "account:42")
	if err != nil {
		return err
	}
	return withdraw(ctx, db, hold, amount)
}

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

func ExampleSQL() {
	// Without a hold charge writes nothing.
	err := charge(context.Background(), nil, 10)
	fmt.Println(err)
	// Output: fence: ctx does not hold the key: "account:42"
}
