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
// statements are constant, and this package imports no driver.
type SQL string

// The dialects.
const (
	Postgres SQL = "postgres"
	MySQL    SQL = "mysql"  // and MariaDB
	SQLite   SQL = "sqlite" // 3.35 and newer
)

// Tx is a transaction of database/sql, or a wrapper of one. Commit and Rollback are not called.
// They are in the interface to exclude a *sql.DB, on which each statement is its own transaction.
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
// its transaction ends. A row takes at most about 600 bytes and is never deleted. The documentation
// of the package says when you may delete it. Create, Advance and Text panic if s is not one of the
// constants.
func (s SQL) Create() string { return s.text("create") }

// Advance makes h the newest hold of h.Key in the database, and locks its row until tx ends. From
// then on older holds cannot write. A newer hold waits for the end of tx, even if the holder hangs.
// So begin tx with the ctx of the hold (BeginTx), and let the server end idle transactions.
//
// Make Advance the first statement of tx, and then read and write. A read before Advance may miss
// the last write of the hold before.
//
// Errors:
//
//   - A *StaleError: nothing was written. Roll tx back.
//   - An invalid h: the error names the field.
//   - An error of the driver, unchanged. Roll tx back. The documentation of the package lists the
//     errors after which you can run the whole transaction again under the same hold.
func (s SQL) Advance(ctx context.Context, tx Tx, h Hold) error {
	if err := h.check(); err != nil {
		return err
	}
	text, args := s.Text(h)
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if s != MySQL { // MySQL counts no row, both for a refused hold and for one that is stored already
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
// database/sql. In PostgreSQL and SQLite the statement affects one row, or none if h is refused. In
// MySQL the number of rows has no meaning. Instead, read token and hold of the row with FOR UPDATE.
// If they are not those of h, h is refused.
func (s SQL) Text(h Hold) (text string, args []any) {
	args = []any{[]byte(h.Key), h.Token, h.ID}
	if s == MySQL {
		args = append(args, h.Token, h.ID, h.Token)
	}
	return s.text("advance"), args
}
