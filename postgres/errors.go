package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
)

// This file says what the errors of statements mean for a store.

const (
	readOnly    = "25006" // of the transaction
	notPrepared = "26000" // the statement
)

// noStandbyError is the error instead of a further connection: too many statements wait for a standby.
type noStandbyError struct{ waiting int32 }

func (e *noStandbyError) Error() string {
	return fmt.Sprintf("postgres: %d statements of this user wait for a synchronous standby: start one that synchronous_standby_names has, or change it", e.waiting)
}

// advised adds to an error of the server what to do.
func (s *store) advised(err error) error {
	say := ""
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "42P01":
			say = "execute the statements of postgres.Create, or set Options.Schema (-schema)"
		case "42501":
			say = "as the owner of the table: " + s.grants
		case notPrepared:
			say = "something has discarded the statements that pgx has prepared, as DISCARD ALL or a pooler in transaction mode do: set default_query_exec_mode=exec"
		case readOnly:
			say = "the server is a standby, or default_transaction_read_only is on: connect to the primary, which target_session_attrs=read-write finds"
		}
	}
	if say == "" || strings.HasSuffix(err.Error(), say) {
		return err
	}
	return fmt.Errorf("%w: %s", err, say)
}

// grantsOf returns the statements that give a user all rights that a Locker needs.
func grantsOf(schema, user string) string {
	to := " TO " + pgx.Identifier{user}.Sanitize()
	text := "GRANT SELECT, INSERT, UPDATE, DELETE ON " + table(schema) + to
	if schema != "" {
		text = "GRANT USAGE ON SCHEMA " + pgx.Identifier{schema}.Sanitize() + to + "; " + text
	}
	return text
}

// notSentError is the error of a statement that got no connection.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// unacknowledged returns the error of a statement whose wait for a standby was canceled. Its effect is
// there and others see it, but a failover may lose it.
func unacknowledged(warning string) error {
	return &backend.AcksError{Wanted: 1, Reason: warning}
}

// conflict returns ErrConflict for an error that means that the row must be read again.
func conflict(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == "40001" || e.Code == "40P01") {
		return rows.ErrConflict
	}
	return err
}

// lost reports whether a pipeline ends with this error.
func lost(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return err != nil && !errors.Is(err, rows.ErrConflict) && (!ok || ends(e))
}

// ends reports whether the server ends the connection with this error.
func ends(e *pgconn.PgError) bool { return e.SeverityUnlocalized != "ERROR" && e.Severity != "ERROR" }

// stale reports whether another connection may not have this error. After a failover it may go to the
// primary.
func stale(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == readOnly || e.Code == notPrepared)
}

// Permanent implements rows.Store: errors of the statement, its data, the rights or the login, and an old
// server.
func (s *store) Permanent(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return errors.As(err, new(*oldServerError)) || ok && (strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "28") || strings.HasPrefix(e.Code, "42") ||
		e.Code == "3D000" || e.Code == "3F000")
}

// MayTakeEffect implements rows.Store. A statement whose error the server returns has no effect, unless
// the error ends the connection.
func (s *store) MayTakeEffect(err error) bool {
	if err == nil || errors.Is(err, rows.ErrConflict) || errors.As(err, new(*notSentError)) || errors.As(err, new(*pgconn.ConnectError)) || pgconn.SafeToRetry(err) {
		return false
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || ends(e) || e.Code == "40003"
}
