package fence

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
)

// SQL is a fence in the database that has the resource. The table holdfast_fence has a row for each
// key of a lock. The search_path or the database of the connection selects its schema. The
// statements are constant, and this package imports no driver. MySQL's own server is supported by
// design but not tested.
//
// If a write changes only one row, that row can contain the fence instead, which saves the table
// and a round trip. Existing rows need the columns with their defaults, because no token is greater
// than NULL. In PostgreSQL:
//
//	ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0, ADD COLUMN fence_hold text NOT NULL DEFAULT ''
//
// In MySQL and MariaDB, where "a" and "A" are equal in a VARCHAR:
//
//	ALTER TABLE accounts ADD COLUMN fence BIGINT NOT NULL DEFAULT 0, ADD COLUMN fence_hold VARBINARY(64) NOT NULL DEFAULT ''
//
// In SQLite, which adds one column a statement:
//
//	ALTER TABLE accounts ADD COLUMN fence INTEGER NOT NULL DEFAULT 0; ALTER TABLE accounts ADD COLUMN fence_hold TEXT NOT NULL DEFAULT ''
//
// Compare and set in one statement. $2 is the token and $3 the ID of the hold:
//
//	UPDATE accounts SET balance = $1, fence = $2, fence_hold = $3
//	WHERE id = $4 AND (fence < $2 OR (fence = $2 AND fence_hold = $3))
//
// If no row is affected, the hold is stale or there is no such row. SQLite accepts the statement as
// it is. In MySQL write ? for each parameter, with the arguments $1 to $4, $2, $2, $3, and connect
// with clientFoundRows=true. Otherwise a write that changes nothing looks stale.
type SQL string

// The dialects.
const (
	Postgres SQL = "postgres"
	MySQL    SQL = "mysql"  // and MariaDB
	SQLite   SQL = "sqlite" // 3.35 and newer
)

// Tx is a transaction of database/sql, or a wrapper of one. Commit and Rollback are not called.
// They are required so that a *sql.DB, on which each statement is its own transaction, does not
// satisfy Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

//go:embed sql/*.sql
var statements embed.FS

func (s SQL) text(name string) string {
	b, err := statements.ReadFile("sql/" + string(s) + "_" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("fence: SQL is %q, must be Postgres, MySQL or SQLite", string(s)))
	}
	return strings.TrimSpace(string(b))
}

// Create returns the statement that creates the table if it does not exist. Several instances may
// run it at the same time. For PostgreSQL it is a DO statement, which takes an advisory lock until
// its transaction ends. Create, Advance and Text panic if s is not one of the constants.
//
// A row takes at most about 600 bytes and is never deleted. Tokens are µs since 1970, so DELETE
// FROM holdfast_fence WHERE token < … deletes the rows of holds that began before a time. Choose a
// time before the start of every hold that can still write, because a deleted row stops no hold.
func (s SQL) Create() string { return s.text("create") }

// Advance makes h the newest hold of h.Key in the database, and locks its row until tx ends. From
// then on older holds cannot write. It needs the rights SELECT, INSERT and UPDATE on the table.
//
//   - Make Advance the first statement of tx, and then read and write. A read before Advance may
//     miss the last write of the hold before. At REPEATABLE READ of MySQL such a transaction
//     continues to see the old data, without any error.
//   - Every isolation level from READ COMMITTED on works, in MySQL with and without
//     clientFoundRows.
//   - A newer hold waits for the end of tx, even if the holder hangs. So begin tx with the hold's
//     ctx: BeginTx of database/sql then rolls back when that ctx ends. Also let the server end idle
//     transactions; docs/sql.md has the settings.
//   - Advance several keys in the same order everywhere.
//   - In SQLite begin tx as IMMEDIATE and set a busy_timeout, so that it waits for the one writer.
//     With modernc.org/sqlite the data source name ends with
//     ?_txlock=immediate&_pragma=busy_timeout(5000).
//
// Errors:
//
//   - A *StaleError: nothing was written. Roll tx back.
//   - An invalid h: the error names the field.
//   - An error of the driver, unchanged. Roll tx back. If the server could not serialize tx, run
//     the whole transaction again under the same hold: after SQLSTATE 40001 or 40P01 in PostgreSQL
//     (usual from REPEATABLE READ on), 1213, 1205 or 1020 in MySQL and MariaDB, SQLITE_BUSY in
//     SQLite.
func (s SQL) Advance(ctx context.Context, tx Tx, h Hold) error {
	if err := h.check(); err != nil {
		return err
	}
	text, args := s.Text(h)
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if s != MySQL { // MySQL counts no row, both for a stale hold and for one that is stored already
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
	}
	var token int64
	var id string
	if err := tx.QueryRowContext(ctx, s.text("seen"), []byte(h.Key)).Scan(&token, &id); err != nil {
		return err
	}
	if token != h.Token || id != h.ID {
		return h.stale(token)
	}
	return nil
}

// Text returns the statement of Advance and its arguments, for programs that do not use
// database/sql. In PostgreSQL and SQLite the statement affects one row, or none if h is stale. In
// MySQL the number of rows has no meaning. Instead, read token and hold of the row with FOR UPDATE.
// If they are not h's, h is stale.
func (s SQL) Text(h Hold) (text string, args []any) {
	args = []any{[]byte(h.Key), h.Token, h.ID}
	if s == MySQL {
		args = append(args, h.Token, h.ID, h.Token)
	}
	return s.text("advance"), args
}
