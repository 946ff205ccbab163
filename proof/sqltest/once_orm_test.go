//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// In the transactions of sqlx, GORM, bun and ent, the key and the effect are committed or rolled
// back together.
func TestOnceORM(t *testing.T) {
	s := postgres.need(t)
	const insert = "INSERT INTO effect VALUES ('orm')"
	do := func(ctx context.Context, tx sqlonce.Tx, effect func(context.Context) error) error {
		out, err := sqlonce.Do(ctx, tx, "orm", sqlonce.Options{}, effect)
		if err == nil && out != guard.Ran && out != guard.Replayed {
			t.Errorf("outcome %v", out)
		}
		return err
	}
	for name, run := range map[string]func(ctx context.Context, db *sql.DB, end error) error{
		"sqlx": func(ctx context.Context, db *sql.DB, end error) error {
			tx, err := sqlx.NewDb(db, "pgx").BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			err = do(ctx, sqlonce.Postgres(tx), func(ctx context.Context) error { // sqlx
				_, err := tx.ExecContext(ctx, insert)
				return errors.Join(err, end)
			})
			if err != nil {
				return err
			}
			return tx.Commit()
		},
		"gorm": func(ctx context.Context, db *sql.DB, end error) error {
			for _, prepare := range []bool{false, true} {
				g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
				if err != nil {
					return err
				}
				err = g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
					pool, _ := tx.Statement.ConnPool.(fence.Tx)
					return do(ctx, sqlonce.Postgres(pool), func(context.Context) error { // GORM
						return errors.Join(tx.Exec(insert).Error, end)
					})
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		"bun": func(ctx context.Context, db *sql.DB, end error) error {
			return bun.NewDB(db, pgdialect.New()).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return do(ctx, sqlonce.Postgres(tx.Tx), func(ctx context.Context) error { // bun; a bun.Tx itself formats placeholders in another way
					_, err := tx.ExecContext(ctx, insert)
					return errors.Join(err, end)
				})
			})
		},
		"ent": func(ctx context.Context, db *sql.DB, end error) error {
			return inTx(ctx, db, nil, func(tx *sql.Tx) error {
				driver := entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx}) // for ent.NewClient(ent.Driver(driver))
				return do(ctx, sqlonce.Postgres(tx), func(ctx context.Context) error {     // ent
					return errors.Join(driver.Exec(ctx, insert, []any{}, nil), end)
				})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := s.openEffects(t)
			if err := run(t.Context(), db, errFail); !errors.Is(err, errFail) || effects(t, db, "orm") != 0 {
				t.Errorf("rolled back: %v, %d effects", err, effects(t, db, "orm"))
			}
			for range 2 {
				if err := run(t.Context(), db, nil); err != nil {
					t.Fatal(err)
				}
			}
			if n := effects(t, db, "orm"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}
