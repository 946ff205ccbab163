package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// conns are the open connections of a Locker, so that Close ends the statements in flight at once.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

type dialingKey struct{}

// dialing returns a ctx with which the connections of conns may be opened.
func dialing(ctx context.Context) context.Context { return context.WithValue(ctx, dialingKey{}, true) }

var (
	errClosed   = errors.New("the Locker is closed")
	errNoCancel = errors.New("no statement is canceled")
)

const oldest = 13 // version of a server

// oldServerError means that the version of the server is too old.
type oldServerError struct{ version string }

func (e *oldServerError) Error() string {
	return fmt.Sprintf("postgres: the server is PostgreSQL %s, must be %d or later: update it", e.version, oldest)
}

// own makes the connections of a config those of c.
//
// At a time limit pgx closes the connection and cancels the statement by another connection. A canceled
// wait for a standby would show other processes what a failover may still undo, so that dial fails.
func (c *conns) own(conf *pgx.ConnConfig) {
	dial, notice, connected := conf.DialFunc, conf.OnNotice, conf.AfterConnect
	conf.AfterConnect = func(ctx context.Context, on *pgconn.PgConn) error {
		version := on.ParameterStatus("server_version")
		if major, err := strconv.Atoi(version[:strings.IndexFunc(version+".", func(r rune) bool { return r < '0' || r > '9' })]); err == nil && major < oldest {
			return &oldServerError{version}
		}
		if connected != nil {
			return connected(ctx, on)
		}
		return nil
	}
	conf.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(dialingKey{}) == nil {
			return nil, errNoCancel
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c.add(conn)
	}
	conf.OnNotice = func(on *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			on.CustomData()[warningKey] = n.Message //planted:postgres-warning
		}
		if notice != nil {
			notice(on, n)
		}
	}
}

const warningKey = "holdfast warning"

// warning returns the last warning on a connection since the call before. A statement of a store causes
// only one: that its wait for a standby was canceled.
func warning(on *pgconn.PgConn) string {
	text, _ := on.CustomData()[warningKey].(string)
	delete(on.CustomData(), warningKey)
	return text
}

func (c *conns) add(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = conn.Close()
		return nil, errClosed
	}
	if c.open == nil {
		c.open = map[net.Conn]bool{}
	}
	c.open[conn] = true
	return &ownConn{conn, c}, nil
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close()
	}
}

// ownConn is a connection of conns.
type ownConn struct {
	net.Conn
	of *conns
}

// Close closes the connection.
func (c *ownConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
