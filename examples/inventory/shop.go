package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/sqlonce"
)

const clickTimeout = 2 * time.Minute

var (
	errSoldOut  = errors.New("sold out")
	errConflict = errors.New("another transaction has changed the row")

	clickTerms = lockcore.Terms{Wait: clickTimeout}
)

// shop has what one run of a strategy needs.
type shop struct {
	*database
	rdb      *redis.Client
	locks    *lockcore.Locker
	gate     string        // the counter in Redis
	workTime time.Duration // what a sale does between its read and its write
	empty    []atomic.Bool // stripes that were empty
	retries  atomic.Int64  // transactions that began again
	paused   func()        // set in the process that is paused
}

// runner is a *sql.DB or a *sql.Tx.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// sell reads, and then writes. Without a lock or a transaction, another click can write in between.
func (s *shop) sell(ctx context.Context, r runner, user, row int) error {
	var orders, left int
	if err := s.row(ctx, r, `SELECT count(*) FROM orders WHERE buyer = ?`, user).Scan(&orders); err != nil || orders > 0 {
		return err
	}
	if err := s.row(ctx, r, `SELECT units FROM stock WHERE id = ?`, row).Scan(&left); err != nil {
		return err
	}
	if left < 1 {
		return errSoldOut
	}
	s.work(ctx)
	ctx = s.pause(ctx)
	if _, err := s.exec(ctx, r, `UPDATE stock SET units = ? WHERE id = ?`, left-1, row); err != nil {
		return err
	}
	return s.order(ctx, r, user)
}

func (s *shop) order(ctx context.Context, r runner, user int) error {
	_, err := s.exec(ctx, r, `INSERT INTO orders (buyer) VALUES (?)`, user)
	return err
}

// work simulates the rest of a sale, such as a check of the address.
func (s *shop) work(ctx context.Context) { _ = stage.Sleep(ctx, s.workTime) }

// pause stops the process if it is the buyer that is paused. The ctx that it returns does not end
// with the lock, because a statement that was sent cannot be canceled.
func (s *shop) pause(ctx context.Context) context.Context {
	if s.paused == nil {
		return ctx
	}
	s.paused()
	s.paused = nil
	return context.WithoutCancel(ctx)
}

func (s *shop) exec(ctx context.Context, r runner, query string, args ...any) (rows int64, err error) {
	res, err := r.ExecContext(ctx, s.bind(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s *shop) row(ctx context.Context, r runner, query string, args ...any) *sql.Row {
	return r.QueryRowContext(ctx, s.bind(query), args...)
}

// bind replaces each placeholder ? by the placeholder of the database.
func (s *shop) bind(query string) string {
	if s.dialect != fence.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
	}
	return query
}

// transaction runs f in a transaction. It begins again after a conflict with another transaction.
func (s *shop) transaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := s.tryTransaction(ctx, f)
		if ctx.Err() != nil || !errors.Is(err, errConflict) && !retryable(err) {
			return err
		}
		s.retries.Add(1)
		time.Sleep(rand.N(time.Duration(min(try, 16)) * time.Millisecond))
	}
}

func (s *shop) tryTransaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// retryable reports whether the server asks to run the transaction again.
func retryable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "40001" || e.Code == "40P01"
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == 1213 || e.Number == 1205 || e.Number == 1020
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func orderKey(user int) string { return fmt.Sprint("order:", user) }

// onceInRedis runs f unless the user has an order. The record is in Redis.
func (s *shop) onceInRedis(ctx context.Context, user int, f func(ctx context.Context) error) error {
	_, err := guard.Once(ctx, s.locks, orderKey(user), guard.OnceOptions{Terms: clickTerms, Keep: keep}, f)
	return err
}

// onceInSQL runs f unless the user has an order. The record and the order are in one transaction.
func (s *shop) onceInSQL(ctx context.Context, user int, f func(ctx context.Context, tx *sql.Tx) error) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		once := map[fence.SQL]func(fence.Tx) sqlonce.Tx{fence.Postgres: sqlonce.Postgres, fence.MySQL: sqlonce.MySQL, fence.SQLite: sqlonce.SQLite}[s.dialect]
		_, err := sqlonce.Do(ctx, once(tx), orderKey(user), sqlonce.Options{}, func(ctx context.Context) error { return f(ctx, tx) })
		return err
	})
}
