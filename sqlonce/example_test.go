package sqlonce_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

type receipt struct{ Payment, Amount int64 }

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

// notSerialized reports whether the error of the server means that the transaction must run again.
// It knows the errors of pgx and lib/pq.
func notSerialized(err error) bool {
	pg, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && (pg.SQLState() == "40001" || pg.SQLState() == "40P01")
}

// A payment is booked once. The second call gets the receipt of the first.
func Example() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	if _, err := db.ExecContext(ctx, sqlonce.Create(fence.Postgres)); err != nil { // at the start of the program
		log.Fatal(err)
	}
	for range 2 {
		r, err := pay(ctx, db, 7, 42, 10)
		fmt.Println(r, err)
	}
}

// A message is written to the outbox once. Do costs one statement.
func ExampleDo() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	outcome, err := sqlonce.Do(ctx, sqlonce.Postgres(tx), "order:7/sent", sqlonce.Options{}, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO outbox (topic, body) VALUES ('sent', '7')")
		return err
	})
	if err == nil {
		err = tx.Commit()
	}
	fmt.Println(outcome == guard.Ran, err)
}

// A cron job deletes rows that are older than 30 days. No request for a payment arrives again after
// that time. At READ COMMITTED calls for new keys do not wait for the transaction of Purge.
func ExamplePurge() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	for {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			log.Fatal(err)
		}
		n, err := sqlonce.Purge(ctx, sqlonce.Postgres(tx), 30*24*time.Hour, 10_000)
		if err == nil {
			err = tx.Commit()
		}
		_ = tx.Rollback() // has no effect after Commit
		if err != nil || n == 0 {
			fmt.Println(err)
			return
		}
	}
}

// An operator looks a key up, and lets it run again.
func ExampleClear() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	one := sqlonce.Postgres(tx)
	status, err := sqlonce.Lookup(ctx, one, "payment:7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Done, status.At, string(status.Content.Data))
	if _, err := sqlonce.Clear(ctx, one, "payment:7"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// openDB opens the database of the program.
func openDB() *sql.DB {
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	return db
}
