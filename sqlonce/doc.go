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
// guard.Once keeps its record in Redis. So a process that dies between the effect and the record
// leaves the outcome unknown. This package keeps the record in a row of the database that has the
// effect. One commit stores both or none. There is no lease, no watchdog and no state "held".
//
// Call [Do] or [DoValue] first in the transaction, make the effect in that transaction, and commit
// if there is no error. [Create] returns the text that creates the table. The package imports no
// driver. It works with database/sql and pgx on PostgreSQL, and with database/sql on MySQL, MariaDB
// and SQLite.
//
// # Guarantees
//
//   - Of all transactions that run the function of a key, at most one commits. Later transactions
//     replay.
//   - If another transaction has the key, a call waits inside the database until that transaction
//     has ended. After a commit the call replays. After a rollback (because of an error, a panic or
//     a crash) the call runs.
//   - If the reply to a commit was lost, the next call replays.
//   - An error is not recorded. When you roll the transaction back, the row disappears with the
//     effect.
//
// # Limits
//
//   - The guarantees cover only what is in this database. A charge or a mail that the function
//     sends may happen again after a rollback. Pass the key downstream, or write an outbox row in
//     the transaction.
//   - An effect that is written outside of the transaction, through the *sql.DB, is not covered.
//   - A key is forgotten after [Clear] or [Purge].
//
// # What you must do
//
//   - Begin the transaction with a ctx (BeginTx), so that it ends with the request.
//   - Let the server end idle transactions, because a client that is paused with an open
//     transaction keeps its key: idle_in_transaction_session_timeout in PostgreSQL,
//     idle_transaction_timeout in MariaDB, wait_timeout in MySQL.
//   - Set tcp_keepalives_idle in PostgreSQL. A machine that disappears without closing its
//     connections keeps its keys until the keepalive of TCP ends them, by default after two hours
//     on Linux.
//   - Return every error of the driver from fn. After error 1213 MySQL and MariaDB have rolled the
//     transaction back, with the row. If fn hides that error, Do returns Ran, and later statements
//     of the transaction commit one by one. DoValue detects that its row has disappeared. Do does
//     not.
//   - Do not call Clear in fn with the key of fn. Do would return Ran, and the key would run again.
//   - Roll back after every error of Do and DoValue, except guard.ErrNoResult. If only the result
//     could not be encoded, you may also commit.
//   - Return a refusal that must be remembered as a value of DoValue. An error is not recorded.
//   - Pass the ctx of fn to calls inside fn. A nested call with the same key and dialect is found
//     through ctx, and is refused, because it would wait for its own caller. Inside fn a call for a
//     second database of the same dialect needs another key.
//   - Run the whole transaction again if the error of the server requires that: SQLSTATE 40001 and
//     40P01 in PostgreSQL, 1213, 1205 and 1020 in MySQL and MariaDB, SQLITE_BUSY in SQLite. The
//     functions return errors of the driver unchanged.
//   - In MySQL call Do before any read of the transaction. At REPEATABLE READ an earlier read fixes
//     what later reads return.
//   - In SQLite begin the transaction as IMMEDIATE and set a busy_timeout. With modernc.org/sqlite
//     the data source name ends with ?_txlock=immediate&_pragma=busy_timeout(5000).
//   - Delete old rows with Purge, from a cron job for example, in transactions at READ COMMITTED.
//     At other levels calls for new keys wait for the transaction of Purge in MySQL and MariaDB.
//     Keep a row for longer than the time within which the same work may arrive again.
//
// # Waiting and isolation
//
// A call that waits ends with its ctx, or with the lock timeout of the database. That is
// lock_timeout in PostgreSQL (SQLSTATE 55P03), innodb_lock_wait_timeout in MySQL and MariaDB (50 s;
// error 1205), and busy_timeout in SQLite. To skip the work instead of waiting, call guard.Once
// with lockcore.NoWait around the transaction.
//
//   - Every isolation level works.
//   - From REPEATABLE READ on, PostgreSQL ends a call that has waited with 40001. The next try
//     replays.
//   - If calls waited for a transaction that was rolled back, MySQL and MariaDB may end them with
//     error 1213.
//   - A savepoint keeps or rolls back a key and its effect together, so nested transactions of an
//     ORM work.
//   - PgBouncer in transaction mode works. pgx needs default_query_exec_mode=exec in its DSN there,
//     unless PgBouncer is 1.21 or newer and has max_prepared_statements: by default pgx prepares
//     statements, and a later transaction may run on a connection that does not have them.
//
// # Requirements
//
// The package needs PostgreSQL 9.6, MySQL 8.0.13, MariaDB 10.6 (10.2 without Purge), SQLite 3.35
// and pgx 5.7, or newer versions.
//
// The rights on holdfast_once that the functions need:
//
//   - Do and DoValue: SELECT, INSERT and UPDATE
//   - Purge: SELECT and DELETE, in PostgreSQL also UPDATE
//   - Clear: SELECT, DELETE and INSERT
//
// # Redis in front
//
// Under httpmw.Idempotent and asynqmw.Once, use the key of the request or task: [httpmw.Key],
// asynqmw.OnceKey. Redis then only saves time. Calls wait in the wait queue of the key, a repeat
// gets its response with one command, and a payload that differs is refused early. If Redis loses
// the record, the handler runs, finds the row, and returns the same response.
//
// The effect may be one row, without a result to return. Then a unique column in your own table is
// enough, and costs one statement less than Do.
//
// # Testing
//
// An SQLite file needs no server. The tests of this package on all databases are in
// proof/sqltest. MySQL's own server is supported by design but not tested.
//
// [httpmw.Key]: https://pkg.go.dev/github.com/holdfast-go/holdfast/middleware/httpmw#Key
package sqlonce
