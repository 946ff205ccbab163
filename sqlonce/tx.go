package sqlonce

import (
	"context"
	"embed"
	"fmt"
	"reflect"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

// Tx is an open transaction of the caller and its dialect. [Postgres], [Pgx], [MySQL] and [SQLite]
// return one. The functions of this package neither commit it nor roll it back. A savepoint keeps
// or rolls back a key and its effect together, so nested transactions of an ORM work.
type Tx struct {
	dialect  fence.SQL
	exec     func(ctx context.Context, query string, args ...any) (rows int64, err error)
	queryRow func(ctx context.Context, query string, args ...any) scanner
}

// scanner is a *sql.Row or a pgx.Row.
type scanner interface{ Scan(dest ...any) error }

// Postgres returns tx as a transaction of PostgreSQL, version 9.6 or newer. tx is a *sql.Tx or a
// wrapper of one that passes statements on unchanged, such as *sqlx.Tx. With bun pass the field Tx
// of bun.Tx.
func Postgres(tx fence.Tx) Tx { return fromSQL(fence.Postgres, tx) }

// MySQL returns tx as a transaction of MySQL (8.0.13 or newer) or MariaDB (10.6 or newer, without
// Purge 10.2). tx is a *sql.Tx or a wrapper of one.
func MySQL(tx fence.Tx) Tx { return fromSQL(fence.MySQL, tx) }

// SQLite returns tx as a transaction of SQLite, version 3.35 or newer. tx is a *sql.Tx or a wrapper
// of one.
func SQLite(tx fence.Tx) Tx { return fromSQL(fence.SQLite, tx) }

// PgxTx has the methods of pgx.Tx that this package needs. Commit and Rollback are not called. They
// are required so that a pool or a connection, on which each statement is its own transaction, does
// not satisfy PgxTx.
type PgxTx[T interface{ RowsAffected() int64 }, R interface{ Scan(dest ...any) error }] interface {
	Exec(ctx context.Context, query string, args ...any) (T, error)
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Pgx returns tx, a pgx.Tx of pgx 5.7 or newer, as a transaction of PostgreSQL. The compiler infers
// both type parameters: sqlonce.Pgx(tx).
//
// Behind PgBouncer in transaction mode, pgx needs default_query_exec_mode=exec in its DSN, unless
// PgBouncer is 1.21 or newer and has max_prepared_statements. By default pgx prepares statements,
// and a later transaction may run on a connection that does not have them.
func Pgx[T interface{ RowsAffected() int64 }, R interface{ Scan(dest ...any) error }](tx PgxTx[T, R]) Tx {
	if isNil(tx) {
		return Tx{}
	}
	return Tx{
		dialect: fence.Postgres,
		exec: func(ctx context.Context, query string, args ...any) (int64, error) {
			tag, err := tx.Exec(ctx, query, args...)
			if err != nil {
				return 0, err
			}
			return tag.RowsAffected(), nil
		},
		queryRow: func(ctx context.Context, query string, args ...any) scanner {
			return tx.QueryRow(ctx, query, args...)
		},
	}
}

func fromSQL(d fence.SQL, tx fence.Tx) Tx {
	if isNil(tx) {
		return Tx{}
	}
	return Tx{
		dialect: d,
		exec: func(ctx context.Context, query string, args ...any) (int64, error) {
			res, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return 0, err
			}
			return res.RowsAffected()
		},
		queryRow: func(ctx context.Context, query string, args ...any) scanner {
			return tx.QueryRowContext(ctx, query, args...)
		},
	}
}

// isNil reports whether tx is nil or a nil pointer, such as the *sql.Tx of a BeginTx that failed.
func isNil(tx any) bool {
	v := reflect.ValueOf(tx)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of a dialect.
type statements struct{ create, claim, seen, record, lookup, clear, purge string }

//nolint:gochecknoglobals // constant, read once
var statementsOf = map[fence.SQL]*statements{
	fence.Postgres: readStatements(fence.Postgres), fence.MySQL: readStatements(fence.MySQL), fence.SQLite: readStatements(fence.SQLite),
}

func readStatements(d fence.SQL) *statements {
	s := new(statements)
	for name, text := range map[string]*string{
		"create": &s.create, "claim": &s.claim, "seen": &s.seen, "record": &s.record, "lookup": &s.lookup, "clear": &s.clear, "purge": &s.purge,
	} {
		b, err := files.ReadFile("sql/" + string(d) + "_" + name + ".sql")
		if err != nil {
			panic(err)
		}
		*text = strings.TrimSpace(string(b))
	}
	return s
}

// Create returns the text that creates the table holdfast_once and its index, if they do not exist.
// The search_path or the database of the connection selects the schema. Several instances may run
// the text at the same time. For PostgreSQL it is one DO statement, which takes an advisory lock.
// For SQLite it is two statements. A row takes about 230 bytes and the length of its key and
// record. Create panics if d is not a constant of package fence.
func Create(d fence.SQL) string {
	s := statementsOf[d]
	if s == nil {
		panic(fmt.Sprintf("sqlonce: Create: d is %q, must be fence.Postgres, fence.MySQL or fence.SQLite", string(d)))
	}
	return s.create
}
