package sqlonce_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/sqlonce"
)

// Mistake: the effect is written through db, which is another transaction. If the transaction of
// the key is rolled back, the effect stays, and the next call repeats it. Write it through tx.
func ExampleDo_otherTransaction_incorrect() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	_, err = sqlonce.Do(ctx, sqlonce.Postgres(tx), "order:7/sent", sqlonce.Options{}, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "INSERT INTO outbox (topic, body) VALUES ('sent', '7')") // wrong: db instead of tx
		return err
	})
	if err == nil {
		err = tx.Commit()
	}
	fmt.Println(err)
}

// Mistake: the function hides an error of the driver. After a deadlock (1213) MySQL has rolled the
// transaction back, with the row of the key. The outbox then has a message, and the key runs again.
// Return the error.
func ExampleDo_hiddenError_incorrect() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	outcome, err := sqlonce.Do(ctx, sqlonce.MySQL(tx), "order:7/sent", sqlonce.Options{}, func(ctx context.Context) error {
		if _, err := tx.ExecContext(ctx, "UPDATE customers SET orders = orders + 1 WHERE id = 42"); err != nil {
			log.Print(err) // wrong: not returned
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO outbox (topic, body) VALUES ('sent', '7')")
		return err
	})
	if err == nil {
		err = tx.Commit()
	}
	fmt.Println(outcome, err) // Ran, but there is no row
}

var errNotEnough = errors.New("not enough money")

// Mistake: the refusal is an error, so it is not recorded. A repeat of the request runs again, and
// may withdraw money after a later deposit. Return a refusal that must be remembered as a value,
// see ExampleDoValue_refusal.
func ExampleDoValue_refusal_incorrect() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	res, err := sqlonce.DoValue(ctx, sqlonce.Postgres(tx), "payment:7", sqlonce.Options{}, func(ctx context.Context) (receipt, error) {
		taken, err := withdrawn(ctx, tx)
		if err == nil && !taken {
			err = errNotEnough // wrong: not recorded
		}
		return receipt{7, 10}, err
	})
	if err == nil {
		err = tx.Commit()
	}
	fmt.Println(res.Value, err)
}

// answer is the result of a payment that may be refused.
type answer struct {
	Receipt receipt
	Refused string
}

// The refusal is a value. A repeat gets the same value, whatever the balance is then.
func ExampleDoValue_refusal() { //nolint:testableexamples // it needs a database server
	ctx, db := context.Background(), openDB()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	res, err := sqlonce.DoValue(ctx, sqlonce.Postgres(tx), "payment:7", sqlonce.Options{}, func(ctx context.Context) (answer, error) {
		taken, err := withdrawn(ctx, tx)
		if err != nil || !taken {
			return answer{Refused: errNotEnough.Error()}, err
		}
		return answer{Receipt: receipt{7, 10}}, nil
	})
	if err == nil {
		err = tx.Commit()
	}
	fmt.Println(res.Value, err)
}

// withdrawn reports whether account 42 had enough money for a payment of 10.
func withdrawn(ctx context.Context, tx *sql.Tx) (bool, error) {
	res, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 42 AND balance >= 10")
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
