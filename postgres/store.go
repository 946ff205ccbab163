package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// store is a rows.Store on a table.
//
// Each statement is a transaction of its own at READ COMMITTED, and has one row. So two statements never
// wait for each other. A clock in a statement is read before the statement waits for the lock of its
// row, so no condition relies on it alone: the version decides, or the form of the row, and a token
// grows from that of the row as it is then.
type store struct {
	pool  *pgxpool.Pool // its own; of Purge: that of the user
	table string

	listen func(context.Context) (*pgx.Conn, error)
	conns  *conns // nil: of Purge
}

var _ rows.Store = (*store)(nil)

const clock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// durable is a condition that is true. It makes the transaction wait for the disk, and for a standby if
// the server is configured so. relaxed makes it wait for neither.
const (
	durable = `set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true) <> ''`
	relaxed = `set_config('synchronous_commit', 'off', true) <> ''`
)

// sql returns a statement. $T, $NOW and $HOUR are the table, the time and its hour.
func (s *store) sql(text string) string {
	return strings.NewReplacer("$T", s.table, "$NOW", clock, "$HOUR", "("+clock+" / 3600000000)::int").Replace(text)
}

const read = `SELECT coalesce(k.version, 0), k.owner, k.locker, k.holder, k.fingerprint, coalesce(k.lease_end, 0), coalesce(k.length, 0), coalesce(k.expires, 0),
  coalesce(k.token, 0), coalesce(k.due, 0), k.data, $NOW, CASE WHEN k.data IS NOT NULL AND k.expires IS NULL THEN
    (SELECT array_agg(substr(application_name, 10)) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'holdfast %') END
FROM (VALUES (1)) AS one LEFT JOIN $T AS k ON k.name = $1`

// Read implements rows.Store. It is one transaction, which locks nothing.
func (s *store) Read(ctx context.Context, names []string) (all []rows.Row, err error) {
	text := s.sql(read)
	err = s.use(ctx, func(c *pgx.Conn) error {
		if len(names) == 1 {
			r, err := scan(c.QueryRow(ctx, text, []byte(names[0])))
			all = []rows.Row{r}
			return err
		}
		var b pgx.Batch
		for _, name := range names {
			b.Queue(text, []byte(name))
		}
		replies := c.SendBatch(ctx, &b)
		defer replies.Close()
		for range names {
			r, err := scan(replies.QueryRow())
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return replies.Close()
	})
	return all, err
}

func scan(from pgx.Row) (r rows.Row, err error) {
	var owner, locker, holder, fingerprint []byte
	err = from.Scan(&r.Version, &owner, &locker, &holder, &fingerprint, &r.End, &r.Length, &r.Expires, &r.Token, &r.Due, &r.Data, &r.Now, &r.Listening)
	r.Owner, r.Locker, r.Holder, r.Fingerprint = string(owner), string(locker), string(holder), string(fingerprint)
	return r, err
}

// The statements of Write, each in two forms. They have the same arguments.
var writes = map[bool]statements{true: newStatements(durable), false: newStatements(relaxed)}

type statements struct{ insert, update, remove string }

func newStatements(commit string) statements {
	in := ` $NOW < $13::bigint AND ` + commit
	return statements{
		insert: `INSERT INTO $T (name, version, owner, locker, holder, fingerprint, lease_end, length, expires, token, due, data)
SELECT $1::bytea, $2::bigint, $3::bytea, $4::bytea, $5::bytea, $6::bytea, $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::int, $12::bytea
WHERE $14::bigint = 0 AND` + in + ` ON CONFLICT (name) DO NOTHING`,
		update: `UPDATE $T SET version = $2, owner = $3, locker = $4, holder = $5, fingerprint = $6, lease_end = $7, length = $8, expires = $9, token = $10,
  due = greatest(due, $11), data = $12
WHERE name = $1 AND version = $14 AND` + in,
		remove: `DELETE FROM $T WHERE name = $1 AND version = $2 AND $NOW < $3::bigint AND ` + commit,
	}
}

// Write implements rows.Store. It is one pipeline with a Sync after each statement, so each is a
// transaction of its own, and no two rows are locked together.
func (s *store) Write(ctx context.Context, ws []rows.Write) []error {
	errs := make([]error, len(ws))
	if len(ws) == 0 {
		return errs
	}
	done := 0
	err := s.use(ctx, func(c *pgx.Conn) error {
		pipe := c.PgConn().StartPipeline(ctx)
		defer pipe.Close()
		for i := range ws {
			text, args := s.statement(&ws[i])
			formats := make([]int16, len(args))
			for i := range formats {
				formats[i] = 1 // binary
			}
			pipe.SendQueryParams(text, args, nil, formats, nil)
			pipe.SendPipelineSync()
		}
		if err := pipe.Flush(); err != nil {
			return err
		}
		for ; done < len(ws); done++ {
			if errs[done] = result(pipe); lost(errs[done]) {
				return errs[done]
			}
			if text := warning(c.PgConn()); text != "" && errs[done] == nil {
				errs[done] = unacknowledged(text)
			}
		}
		return pipe.Close()
	})
	for ; err != nil && done < len(ws); done++ {
		errs[done] = err
	}
	return errs
}

// result returns the result of the next statement of a pipeline.
func result(pipe *pgconn.Pipeline) (err error) {
	for {
		v, e := pipe.GetResults()
		switch v := v.(type) {
		case *pgconn.ResultReader:
			tag, e := v.Close()
			switch {
			case e != nil:
				err = e
			case tag.RowsAffected() == 0:
				err = rows.ErrConflict
			}
		case *pgconn.PipelineSync:
			return conflict(err)
		default:
			if err = e; e == nil {
				err = errors.New("postgres: the pipeline ended early")
			}
			if lost(err) {
				return err
			}
		}
	}
}

// statement returns the statement of a write, and its arguments.
func (s *store) statement(w *rows.Write) (string, [][]byte) {
	of, until := writes[w.Durable], number(w.Read+rows.WriteTime)
	if w.Delete {
		return s.sql(of.remove), [][]byte{[]byte(w.Name), number(w.Was), until}
	}
	r := &w.Row
	text := of.update
	if w.Was == 0 {
		text = of.insert
	}
	return s.sql(text), [][]byte{
		[]byte(w.Name), number(r.Version), bytesOf(r.Owner), bytesOf(r.Locker), bytesOf(r.Holder), bytesOf(r.Fingerprint),
		optional(r.End), optional(r.Length), optional(r.Expires), number(r.Token), binary.BigEndian.AppendUint32(nil, uint32(r.Due)), r.Data, until, number(w.Was), //nolint:gosec // hours
	}
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) } //nolint:gosec // the same bits

// optional returns NULL for 0, and bytesOf for an empty text.
func optional(n int64) []byte {
	if n == 0 {
		return nil
	}
	return number(n)
}

func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// Grant implements rows.Store. t is read once, before the lock of the row.
func (s *store) Grant(ctx context.Context, g rows.Grant) (token int64, granted bool, err error) {
	err = s.use(ctx, func(c *pgx.Conn) error {
		err := c.QueryRow(ctx, s.sql(`INSERT INTO $T AS k (name, version, owner, locker, holder, fingerprint, token, lease_end, length, expires, due)
SELECT $1::bytea, $2::bigint, $3::bytea, $4::bytea, $5::bytea, $6::bytea, t, t + $7::bigint, $7::bigint, t + $8::bigint, ((t + $8::bigint) / 3600000000)::int + 2
FROM (SELECT $NOW AS t OFFSET 0) AS c WHERE `+durable+`
ON CONFLICT (name) DO UPDATE SET version = excluded.version, owner = excluded.owner, locker = excluded.locker, holder = excluded.holder, fingerprint = excluded.fingerprint,
  token = greatest(k.token + 1, excluded.token), lease_end = excluded.lease_end, length = excluded.length, expires = excluded.expires, due = greatest(k.due, excluded.due)
WHERE k.owner IS NULL AND k.data IS NULL RETURNING k.token`),
			[]byte(g.Name), newVersion(), []byte(g.Owner), bytesOf(g.Locker), bytesOf(g.Holder), bytesOf(g.Fingerprint), g.Lease, g.Retention).Scan(&token)
		if err = conflict(err); errors.Is(err, pgx.ErrNoRows) || errors.Is(err, rows.ErrConflict) {
			return nil
		}
		granted = err == nil
		return err
	})
	return token, granted && err == nil, err
}

// Free implements rows.Store.
func (s *store) Free(ctx context.Context, name, owner string, token int64) (bool, error) {
	return s.end(ctx, `UPDATE $T SET version = $3, owner = NULL, locker = NULL, holder = NULL, fingerprint = NULL, lease_end = NULL, length = NULL, expires = NULL,
  token = greatest(token, $4::bigint), due = greatest(due, $HOUR + 2)
WHERE name = $1 AND owner = $2 AND data IS NULL AND expires > $NOW AND `+relaxed, []byte(name), []byte(owner), newVersion(), token)
}

// Finish implements rows.Store.
func (s *store) Finish(ctx context.Context, name, owner string, data []byte, keep rules.Span) (bool, error) {
	return s.end(ctx, `UPDATE $T SET version = $3, owner = NULL, locker = NULL, lease_end = NULL, length = NULL, data = $4,
  expires = $NOW + $5::bigint, due = greatest(due, (($NOW + $5::bigint) / 3600000000)::int + 2)
WHERE name = $1 AND owner = $2 AND data IS NULL AND expires > $NOW AND `+durable, []byte(name), []byte(owner), newVersion(), data, keep)
}

func (s *store) end(ctx context.Context, text string, args ...any) (ended bool, err error) {
	err = s.use(ctx, func(c *pgx.Conn) error {
		tag, err := c.Exec(ctx, s.sql(text), args...)
		if err = conflict(err); errors.Is(err, rows.ErrConflict) {
			return nil
		}
		ended = tag.RowsAffected() > 0
		return err
	})
	return ended && err == nil, err
}

// Names implements rows.Store.
func (s *store) Names(ctx context.Context, after string) ([]string, error) {
	return s.page(ctx, `SELECT name FROM $T WHERE name > $1 ORDER BY name LIMIT $2`, after)
}

// Due implements rows.Store.
func (s *store) Due(ctx context.Context, after string) ([]string, error) {
	return s.page(ctx, `SELECT name FROM $T WHERE name > $1 AND due <= $HOUR ORDER BY name LIMIT $2`, after)
}

func (s *store) page(ctx context.Context, text, after string) (names []string, err error) {
	err = s.use(ctx, func(c *pgx.Conn) error {
		found, err := c.Query(ctx, s.sql(text), []byte(after), rows.NamesPerPage)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (string, error) {
			var name []byte
			err := row.Scan(&name)
			return string(name), err
		})
		return err
	})
	return names, err
}

// use runs statements on a connection.
func (s *store) use(ctx context.Context, f func(*pgx.Conn) error) error {
	c, err := s.pool.Acquire(dialing(ctx))
	if err != nil {
		return &notSentError{err}
	}
	defer c.Release()
	warning(c.Conn().PgConn())
	err = f(c.Conn())
	if text := warning(c.Conn().PgConn()); text != "" && err == nil {
		err = unacknowledged(text)
	}
	return err
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

// Permanent implements rows.Store: errors of the statement, its data, the rights or the login.
func (s *store) Permanent(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "28") || strings.HasPrefix(e.Code, "42") ||
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

// Close implements rows.Store.
func (s *store) Close() {
	s.conns.close()
	s.pool.Close()
}

func newStore(pool *pgxpool.Pool, o Options) (*store, error) {
	s := &store{table: table(o.Schema), conns: &conns{}}
	conf := pool.Config()
	listen, prepare := o.Listen, conf.BeforeConnect
	if listen == nil {
		listen = conf.ConnConfig
	} else {
		prepare = nil
	}
	listen = listen.Copy()
	s.conns.own(listen)
	s.listen = func(ctx context.Context) (*pgx.Conn, error) {
		to := listen.Copy()
		if prepare != nil {
			if err := prepare(ctx, to); err != nil {
				return nil, err
			}
		}
		return pgx.ConnectConfig(dialing(ctx), to)
	}
	conf.MinConns, conf.MinIdleConns = 0, 0 // New sends nothing
	s.conns.own(conf.ConnConfig)
	var err error
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), conf); err != nil {
		return nil, fmt.Errorf("postgres: New: %w", err)
	}
	return s, nil
}
