// Package sqlonce runs work once, in the SQL transaction that has its effect.
//
// This program writes an order once. The second call replays:
//
//	package main
//
//	import (
//		"context"
//		"database/sql"
//		"fmt"
//
//		_ "modernc.org/sqlite"
//
//		"github.com/holdfast-go/holdfast/fence"
//		"github.com/holdfast-go/holdfast/sqlonce"
//	)
//
//	func main() {
//		ctx := context.Background()
//		db, err := sql.Open("sqlite", ":memory:")
//		if err != nil {
//			panic(err)
//		}
//		if _, err := db.ExecContext(ctx, sqlonce.Create(fence.SQLite)+"; CREATE TABLE orders (id)"); err != nil {
//			panic(err)
//		}
//		for range 2 {
//			tx, err := db.BeginTx(ctx, nil)
//			if err != nil {
//				panic(err)
//			}
//			outcome, err := sqlonce.Do(ctx, sqlonce.SQLite(tx), "order:7", sqlonce.Options{}, func(ctx context.Context) error {
//				_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (7)")
//				return err
//			})
//			if err != nil {
//				panic(err) // the transaction must not be committed
//			}
//			fmt.Println(outcome, tx.Commit())
//		}
//	}
//
// guard.Once keeps its record in Redis, so a process that dies between the effect and the record
// leaves the outcome unknown. This package keeps the record in a row of the database that has the
// effect, so that one commit stores both or none. There is no lease and no state "held".
//
// Call [Do] or [DoValue] first in the transaction, make the effect in that transaction, and commit
// if there is no error. [Create] returns the text that creates the table. The package imports no
// driver: it works with database/sql on PostgreSQL, MySQL, MariaDB and SQLite, and with pgx.
// docs/sql.md has recipes, also for ORMs.
//
// # Guarantees
//
//   - Of all transactions that run the function of a key, at most one commits. Later ones replay.
//   - While another transaction runs the key, a call waits inside the database. After a commit it
//     replays. After a rollback, because of an error, a panic or a crash, it runs.
//   - If the reply to a commit was lost, the next call replays.
//   - An error is not recorded. When you roll the transaction back, the row disappears with the
//     effect.
//
// # Limits
//
//   - Only what is in this database is covered, and only through the transaction. A charge or a
//     mail that the function sends may happen again after a rollback. Pass the key to its receiver,
//     or write a row of an outbox.
//   - A key is forgotten after [Clear] or [Purge].
//
// # What you must do
//
//   - Begin the transaction with a ctx (BeginTx), and let the server end idle transactions, because
//     a paused client keeps its key locked. docs/sql.md has the settings.
//   - Return every error of the driver from fn, and roll back after every error of Do and DoValue
//     except guard.ErrNoResult.
//   - Return a decision that must be remembered as a value of DoValue.
//   - Run the whole transaction again if the server asks for that: SQLSTATE 40001 and 40P01 in
//     PostgreSQL, 1213, 1205 and 1020 in MySQL and MariaDB, SQLITE_BUSY in SQLite.
//   - In SQLite begin the transaction as IMMEDIATE and set a busy_timeout.
//   - Delete old rows with Purge, but keep a row for longer than the same work may arrive again.
//
// # Redis in front
//
// Under httpmw.Idempotent and asynqmw.Once, use the key of the request or task: [httpmw.Key],
// asynqmw.OnceKey. Redis then only saves time: calls wait in its queue, a repeat costs one command,
// and a payload that differs is found early. If Redis loses the record, the handler runs, finds the
// row, and returns the same response.
//
// If the effect is one row without a result to return, a unique column in your own table is enough,
// and costs one statement less than Do.
//
// # Testing
//
// An SQLite file needs no server. MySQL's own server is supported by design but not tested.
//
// [httpmw.Key]: https://pkg.go.dev/github.com/holdfast-go/holdfast/middleware/httpmw#Key
package sqlonce
