package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
)

// strategies are the ways to sell. The names are in the table that the program prints.
var strategies = []strategy{
	{name: "no lock", control: true, keyless: true, race: time.Millisecond, buy: noLock},
	{name: "Redis: Exclusive(item)", redis: true, buy: exclusive},
	{name: "Redis: 10 stripes, Once(user)", redis: true, stripes: 10, buy: striped},
	{name: "Redis: counter, Once(user)", redis: true, gate: true, buy: counter},
	{name: "Redis: Exclusive, a holder is paused", redis: true, control: true, pause: true, buy: exclusive},
	{name: "Redis: the same, with a fence", redis: true, pause: true, buy: fenced},
	{name: "SQL: row lock", buy: rowLock},
	{name: "SQL: version, sqlonce", buy: versioned},
	{name: "SQL: one UPDATE, sqlonce", buy: oneUpdate},
}

const item = "item:1"

// noLock reads, then writes, as many programs do. It waits for a millisecond in between, so that
// each run shows the harm.
func noLock(ctx context.Context, s *shop, user int) error { return s.sell(ctx, s.db, user, 0) }

// exclusive runs one click of the item at a time, in all processes.
func exclusive(ctx context.Context, s *shop, user int) error {
	return guard.Exclusive(ctx, s.locks, item, clickTerms, func(ctx context.Context) error {
		return s.sell(ctx, s.db, user, 0)
	})
}

// striped has a tenth of the units under each of ten keys, so that ten clicks sell at the same
// time. Once keeps the two clicks of a user from buying in two stripes. Empty stripes are
// remembered, so that late clicks do not try all ten.
func striped(ctx context.Context, s *shop, user int) error {
	return s.onceInRedis(ctx, user, func(ctx context.Context) error {
		for i := range s.empty {
			row := (user + i) % len(s.empty)
			if s.empty[row].Load() {
				continue
			}
			err := guard.Exclusive(ctx, s.locks, fmt.Sprint(item, "/", row), clickTerms, func(ctx context.Context) error {
				return s.sell(ctx, s.db, user, row)
			})
			if !errors.Is(err, errSoldOut) {
				return err
			}
			s.empty[row].Store(true)
		}
		return errSoldOut
	})
}

// counter decrements a counter in Redis first, so that late clicks do not reach the database. If a
// process dies between the counter and the order, a unit is neither sold nor for sale.
func counter(ctx context.Context, s *shop, user int) error {
	return s.onceInRedis(ctx, user, func(ctx context.Context) error {
		left, err := s.rdb.Decr(ctx, s.gate).Result()
		if err != nil {
			return err
		}
		if left < 0 {
			return errors.Join(errSoldOut, s.rdb.Incr(ctx, s.gate).Err())
		}
		s.work(ctx)
		return s.order(ctx, s.db, user)
	})
}

// fenced is exclusive with a fence in the database, which rejects the write of a paused holder.
func fenced(ctx context.Context, s *shop, user int) error {
	return guard.Exclusive(ctx, s.locks, item, clickTerms, func(ctx context.Context) error {
		hold, err := fence.Of(ctx, item)
		if err != nil {
			return err
		}
		ctx = s.pause(ctx)
		return s.transaction(ctx, func(tx *sql.Tx) error {
			if err := s.dialect.Advance(ctx, tx, hold); err != nil {
				return err
			}
			return s.sell(ctx, tx, user, 0)
		})
	})
}

// rowLock locks the row of the item until the transaction ends. SQLite has one writer, so it needs
// no FOR UPDATE.
func rowLock(ctx context.Context, s *shop, user int) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		lock := `SELECT units FROM stock WHERE id = 0`
		if s.dialect != fence.SQLite {
			lock += ` FOR UPDATE`
		}
		if _, err := tx.ExecContext(ctx, lock); err != nil {
			return err
		}
		return s.sell(ctx, tx, user, 0)
	})
}

// versioned does not lock the row. It writes if the row has not changed since its read. Otherwise
// it begins again.
func versioned(ctx context.Context, s *shop, user int) error {
	return s.onceInSQL(ctx, user, func(ctx context.Context, tx *sql.Tx) error {
		var left, version int
		if err := tx.QueryRowContext(ctx, `SELECT units, version FROM stock WHERE id = 0`).Scan(&left, &version); err != nil {
			return err
		}
		if left < 1 {
			return errSoldOut
		}
		s.work(ctx)
		n, err := s.exec(ctx, tx, `UPDATE stock SET units = ?, version = version + 1 WHERE id = 0 AND version = ?`, left-1, version)
		if err != nil {
			return err
		}
		if n == 0 {
			return errConflict
		}
		return s.order(ctx, tx, user)
	})
}

// oneUpdate changes the stock with one statement. This is the first choice for work in one
// database.
func oneUpdate(ctx context.Context, s *shop, user int) error {
	return s.onceInSQL(ctx, user, func(ctx context.Context, tx *sql.Tx) error {
		n, err := s.exec(ctx, tx, `UPDATE stock SET units = units - 1 WHERE id = 0 AND units > 0`)
		if err != nil {
			return err
		}
		if n == 0 {
			return errSoldOut
		}
		s.work(ctx)
		return s.order(ctx, tx, user)
	})
}
