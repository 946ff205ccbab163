package docs_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

type store struct{ db *sql.DB }

// deliver sends one message of the outbox. Several workers may call it for the same payment; one
// of them sends.
func (s store) deliver(ctx context.Context, locks *lockcore.Locker, payment int64, send func(context.Context) error) error {
	_, err := guard.Once(ctx, locks, fmt.Sprintf("outbox:%d", payment), guard.OnceOptions{}, func(ctx context.Context) error {
		if err := send(ctx); err != nil { // send passes the payment's key, because a worker may die between this line and the next
			return err
		}
		_, err := s.db.ExecContext(ctx, `UPDATE outbox SET sent = now() WHERE payment = $1`, payment)
		return err
	})
	return err
}

// table is a placeholder for the database of deliver.
type table struct{}

func (table) Connect(context.Context) (driver.Conn, error) { return table{}, nil }
func (table) Driver() driver.Driver                        { return nil }
func (table) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (table) Close() error                                 { return nil }
func (table) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }

func (table) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

// A message that was delivered is not sent again. One that failed is.
func TestDeliver(t *testing.T) {
	s := store{sql.OpenDB(table{})}
	defer func() { _ = s.db.Close() }()
	locks, sent := locktest.New(t), 0
	for _, want := range []error{io.ErrUnexpectedEOF, nil, nil} {
		err := s.deliver(t.Context(), locks, 17, func(context.Context) error { sent++; return want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if sent != 2 {
		t.Errorf("sent %d times", sent)
	}
}
