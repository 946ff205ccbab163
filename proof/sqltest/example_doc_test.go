package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// The program in the documentation of package sqlonce.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, sqlonce.Create(fence.SQLite)+"; CREATE TABLE orders (id)"); err != nil {
		panic(err)
	}
	for range 2 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		outcome, err := sqlonce.Do(ctx, sqlonce.SQLite(tx), "order:7", sqlonce.Options{}, func(ctx context.Context) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (7)")
			return err
		})
		if err != nil {
			panic(err) // the transaction must not be committed
		}
		fmt.Println(outcome, tx.Commit())
	}
	// Output:
	// ran <nil>
	// replayed <nil>
}
