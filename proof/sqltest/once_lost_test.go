//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/sqlonce"
)

var errLost = errors.New("the answer to COMMIT was lost")

// lossy makes connections. If lose is set, a connection closes after its next COMMIT and reports
// errLost, as if the reply had been lost.
type lossy struct {
	inner driver.Driver
	dsn   string
	lose  atomic.Bool
}

func (l *lossy) Driver() driver.Driver { return l.inner }

func (l *lossy) Connect(context.Context) (driver.Conn, error) {
	conn, err := l.inner.Open(l.dsn)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, of: l}, nil
}

type lossyConn struct {
	driver.Conn
	of     *lossy
	closed bool
}

// IsValid keeps a closed connection out of the pool.
func (c *lossyConn) IsValid() bool { return !c.closed }

func (c *lossyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o) //nolint:errcheck,forcetypeassert // all three drivers have it
	return &lossyTx{tx, c}, err
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) //nolint:errcheck,forcetypeassert // as above
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args) //nolint:errcheck,forcetypeassert // as above
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type lossyTx struct {
	driver.Tx
	conn *lossyConn
}

func (t *lossyTx) Commit() error {
	err := t.Tx.Commit()
	if t.conn.of.lose.CompareAndSwap(true, false) {
		t.conn.closed = true
		return errors.Join(errLost, err, t.conn.Close())
	}
	return err
}

// After a COMMIT whose reply was lost, the next call replays.
// Shows: Q4
func TestOnceLostCommit(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db, dsn := s.openAs(t, "")
		exec1(t, db, "CREATE TABLE effect (name varchar(64) NOT NULL)")
		connections := &lossy{inner: db.Driver(), dsn: dsn}
		lost := sql.OpenDB(connections)
		defer func() { _ = lost.Close() }()
		pay := func(tx *sql.Tx) (receipt, error) { return receipt{7, 10}, effect(t.Context(), tx, "value") }
		connections.lose.Store(true)
		if _, err := s.do(t.Context(), lost, nil, "do", nil); !errors.Is(err, errLost) {
			t.Errorf("Do: %v", err)
		}
		connections.lose.Store(true)
		if _, err := s.value(t.Context(), lost, "value", sqlonce.Options{}, pay); !errors.Is(err, errLost) {
			t.Errorf("DoValue: %v", err)
		}
		if out, err := s.do(t.Context(), lost, nil, "do", nil); err != nil || out != guard.Replayed {
			t.Errorf("Do again: %v, %v", out, err)
		}
		res, err := s.value(t.Context(), lost, "value", sqlonce.Options{}, pay)
		want(t, "DoValue again", res, err, guard.Replayed, receipt{7, 10})
		for _, key := range []string{"do", "value"} {
			if n := effects(t, db, key); n != 1 {
				t.Errorf("%s: %d effects", key, n)
			}
		}
	})
}
