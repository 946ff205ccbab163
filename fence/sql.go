package fence

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
)

// SQL is a fence in a table of the database that has the resource: a row for each key of a lock, in the table holdfast_fence, which stands where
// the connection's search_path or database says. Its text is constant; no driver is imported.
type SQL string

// The dialects.
const (
	Postgres SQL = "postgres"
	MySQL    SQL = "mysql"  // and MariaDB
	SQLite   SQL = "sqlite" // 3.35 and newer
)

// Tx is a transaction of database/sql, or a wrapper of one. Commit and Rollback are not called; they keep a *sql.DB out, whose every statement
// would be a transaction of its own.
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

// Create returns the statement that creates the table, if there is none. Several instances may run it at the same time. For
// PostgreSQL it is a DO statement, which takes an advisory lock until its transaction ends. A row takes about 600 bytes at most,
// and stays: see the package's doc for when it may be deleted. Create, Advance and Text panic if s is not one of the constants.
func (s SQL) Create() string { return s.text("create") }

// Advance makes h the newest hold that the database knows of for h.Key, within tx, and locks that row until tx ends; so older holds cannot
// write after it, and a newer one waits, also for a holder that hangs: begin tx with the hold's ctx (BeginTx), and let the server end idle
// transactions (see the package's doc). Make it the first statement of tx, and then read and write: what was read before may be older
// than the last write of the hold before.
//
// Errors: a *StaleError: roll tx back, nothing was written. Any other is the driver's, unchanged: where it says that tx may be tried
// again (see the package's doc), roll back and run the whole tx again under the same hold.
func (s SQL) Advance(ctx context.Context, tx Tx, h Hold) error {
	if err := h.check(); err != nil {
		return err
	}
	text, args := s.Text(h)
	res, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if s != MySQL { // MySQL counts no row both for a refusal and for a hold that is known already
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

// Text is the statement of Advance and its arguments, for who does not use database/sql. In PostgreSQL and SQLite it affects one row, or none if h is
// refused. In MySQL the number says nothing: read token and hold back with FOR UPDATE; they are those of h, or h is refused.
func (s SQL) Text(h Hold) (text string, args []any) {
	args = []any{[]byte(h.Key), h.Token, h.ID}
	if s == MySQL {
		args = append(args, h.Token, h.ID, h.Token)
	}
	return s.text("advance"), args
}
