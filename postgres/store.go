package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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
	pool *pgxpool.Pool // its own; of Purge: that of the user
	texts

	grants string // statements that give the user all rights
	listen func(context.Context) (*pgx.Conn, error)
	conns  *conns // nil: of Purge

	misconfigured func(problem string) // nil: nobody listens to it
	reported      sync.Once
}

var _ rows.Store = (*store)(nil)

const _ = rows.Seam1

// texts are the statements on a table.
type texts struct {
	read, grant, free, finish, names, due string

	insert, update, remove map[bool]string // of Write, by Durable; insert and update have the same arguments
}

func textsOf(table string) texts {
	t := texts{
		read: `SELECT coalesce(k.version, 0), k.owner, k.locker, k.holder, k.fingerprint, coalesce(k.lease_end, 0), coalesce(k.length, 0), coalesce(k.expires, 0),
  coalesce(k.token, 0), coalesce(k.due, 0), k.data, $NOW
FROM (VALUES (1)) AS one LEFT JOIN $T AS k ON k.name = $1`,
		grant: `INSERT INTO $T AS k (name, version, owner, locker, holder, fingerprint, token, lease_end, length, expires, due)
SELECT $1::bytea, $2::bigint, $3::bytea, $4::bytea, $5::bytea, $6::bytea, t, t + $7::bigint, $7::bigint, t + $8::bigint, ((t + $8::bigint) / 3600000000)::int + 2
FROM (SELECT $NOW AS t OFFSET 0) AS c WHERE $DURABLE
ON CONFLICT (name) DO UPDATE SET version = excluded.version, owner = excluded.owner, locker = excluded.locker, holder = excluded.holder, fingerprint = excluded.fingerprint,
  token = greatest(k.token + 1, excluded.token), lease_end = excluded.lease_end, length = excluded.length, expires = excluded.expires, due = greatest(k.due, excluded.due)
WHERE k.owner IS NULL AND k.data IS NULL RETURNING k.token`,
		free: `UPDATE $T SET version = $3, owner = NULL, locker = NULL, holder = NULL, fingerprint = NULL, lease_end = NULL, length = NULL, expires = NULL,
  token = greatest(token, $4::bigint), due = greatest(due, $HOUR + 2)
WHERE name = $1 AND owner = $2 AND data IS NULL AND expires > $NOW AND $RELAXED`,
		finish: `UPDATE $T SET version = $3, owner = NULL, locker = NULL, lease_end = NULL, length = NULL, data = $4,
  expires = $NOW + $5::bigint, due = greatest(due, (($NOW + $5::bigint) / 3600000000)::int + 2)
WHERE name = $1 AND owner = $2 AND data IS NULL AND expires > $NOW AND $DURABLE`,
		names:  `SELECT name FROM $T WHERE name > $1 ORDER BY name LIMIT $2`,
		due:    `SELECT name FROM $T WHERE name > $1 AND due <= $HOUR ORDER BY name LIMIT $2`,
		insert: map[bool]string{}, update: map[bool]string{}, remove: map[bool]string{},
	}
	for is, commit := range map[bool]string{true: "$DURABLE", false: "$RELAXED"} {
		t.insert[is] = fill(table, `INSERT INTO $T (name, version, owner, locker, holder, fingerprint, lease_end, length, expires, token, due, data)
SELECT $1::bytea, $2::bigint, $3::bytea, $4::bytea, $5::bytea, $6::bytea, $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::int, $12::bytea
WHERE $14::bigint = 0 AND $NOW < $13::bigint AND `+commit+` ON CONFLICT (name) DO NOTHING`)
		t.update[is] = fill(table, `UPDATE $T SET version = $2, owner = $3, locker = $4, holder = $5, fingerprint = $6, lease_end = $7, length = $8, expires = $9, token = $10,
  due = greatest(due, $11), data = $12
WHERE name = $1 AND version = $14 AND $NOW < $13::bigint AND `+commit)
		t.remove[is] = fill(table, `DELETE FROM $T WHERE name = $1 AND version = $2 AND $NOW < $3::bigint AND `+commit)
	}
	for _, text := range []*string{&t.read, &t.grant, &t.free, &t.finish, &t.names, &t.due} {
		*text = fill(table, *text)
	}
	return t
}

// fill fills in the table, the time in µs and its hour, and two conditions that are true. $DURABLE makes
// the transaction wait for the disk, and for a standby if the server is configured so. $RELAXED makes it
// wait for neither. date_part returns a float64, which has the time to a quarter of a µs, and costs less
// than the numeric of extract.
func fill(table, text string) string {
	const now = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`
	//planted:postgres-statement
	return strings.NewReplacer(
		"$T", table, "$NOW", now, "$HOUR", "("+now+" / 3600000000)::int",
		"$DURABLE", `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) <> '' ELSE true END`,
		"$RELAXED", `set_config('synchronous_commit', 'off', true) <> ''`,
	).Replace(text)
}

// Read implements rows.Store. It is one transaction, which locks nothing.
func (s *store) Read(ctx context.Context, names []string) (all []rows.Row, err error) {
	err = s.reads(ctx, func(c *pgx.Conn) error {
		all = nil
		if len(names) == 1 {
			r, err := scan(c.QueryRow(ctx, s.read, []byte(names[0])))
			all = []rows.Row{r}
			return err
		}
		var b pgx.Batch
		for _, name := range names {
			b.Queue(s.read, []byte(name))
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
	err = from.Scan(&r.Version, &owner, &locker, &holder, &fingerprint, &r.End, &r.Length, &r.Expires, &r.Token, &r.Due, &r.Data, &r.Now)
	r.Owner, r.Locker, r.Holder, r.Fingerprint = string(owner), string(locker), string(holder), string(fingerprint)
	return r, err
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
		send, err := s.sender(ctx, c, ws)
		if err != nil {
			return err
		}
		pipe := c.PgConn().StartPipeline(ctx)
		defer pipe.Close()
		for i := range ws {
			send(pipe, &ws[i])
			pipe.SendPipelineSync()
		}
		if err := pipe.Flush(); err != nil {
			return err
		}
		for ; done < len(ws); done++ {
			if errs[done] = s.advised(result(pipe)); lost(errs[done]) {
				return errs[done]
			}
			if text := warning(c.PgConn()); text != "" && errs[done] == nil {
				errs[done] = unacknowledged(text)
			}
		}
		if err := pipe.Close(); err != nil {
			return err
		}
		if i := slices.IndexFunc(errs, stale); i >= 0 {
			return errs[i]
		}
		return nil
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

// sender returns a function that adds a write to a pipeline. It prepares the statements if the
// connection caches statements. Otherwise there may be a pooler, and the next statement another
// connection to the server.
func (s *store) sender(ctx context.Context, c *pgx.Conn, ws []rows.Write) (func(*pgconn.Pipeline, *rows.Write), error) {
	cached := map[string]*pgconn.StatementDescription{}
	if c.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		for i := range ws {
			text, _ := s.statement(&ws[i])
			if cached[text] != nil {
				continue
			}
			prepared, err := c.Prepare(ctx, text, text)
			if err != nil {
				return nil, &notSentError{err}
			}
			cached[text] = prepared
		}
	}
	return func(pipe *pgconn.Pipeline, w *rows.Write) {
		text, args := s.statement(w)
		binary := slices.Repeat([]int16{1}, len(args))
		if prepared := cached[text]; prepared != nil {
			pipe.SendQueryStatement(prepared, args, binary, nil)
		} else {
			pipe.SendQueryParams(text, args, nil, binary, nil)
		}
	}, nil
}

// statement returns the statement of a write, and its arguments.
func (s *store) statement(w *rows.Write) (string, [][]byte) {
	until := number(w.Read + rows.WriteTime) //planted:postgres-write-time
	if w.Delete {
		return s.remove[w.Durable], [][]byte{[]byte(w.Name), number(w.Was), until}
	}
	r, text := &w.Row, s.update[w.Durable]
	if w.Was == 0 {
		text = s.insert[w.Durable]
	}
	return text, [][]byte{
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
		err := c.QueryRow(ctx, s.grant,
			[]byte(g.Name), rows.NewVersion(), []byte(g.Owner), bytesOf(g.Locker), bytesOf(g.Holder), bytesOf(g.Fingerprint), g.Lease, g.Retention).Scan(&token)
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
	return s.end(ctx, s.free, []byte(name), []byte(owner), rows.NewVersion(), token) //planted:postgres-free
}

// Finish implements rows.Store.
func (s *store) Finish(ctx context.Context, name, owner string, data []byte, keep rules.Span) (bool, error) {
	return s.end(ctx, s.finish, []byte(name), []byte(owner), rows.NewVersion(), data, keep)
}

func (s *store) end(ctx context.Context, text string, args ...any) (ended bool, err error) {
	err = s.use(ctx, func(c *pgx.Conn) error {
		tag, err := c.Exec(ctx, text, args...)
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
	return s.page(ctx, s.names, after)
}

// Due implements rows.Store.
func (s *store) Due(ctx context.Context, after string) ([]string, error) {
	return s.page(ctx, s.due, after)
}

func (s *store) page(ctx context.Context, text, after string) (names []string, err error) {
	err = s.reads(ctx, func(c *pgx.Conn) error {
		found, err := c.Query(ctx, text, []byte(after), rows.NamesPerPage)
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

// reads is use for statements that only read. It repeats them after a conflict, which they have if
// default_transaction_isolation is serializable.
func (s *store) reads(ctx context.Context, f func(*pgx.Conn) error) error {
	for {
		if err := s.use(ctx, f); !errors.Is(conflict(err), rows.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// use runs statements on a connection.
func (s *store) use(ctx context.Context, f func(*pgx.Conn) error) (err error) {
	c, err := s.pool.Acquire(dialing(ctx))
	if err != nil {
		return &notSentError{err}
	}
	defer c.Release()
	defer func() {
		if stale(err) {
			_ = c.Conn().Close(ctx)
		}
		if c.Conn().IsClosed() {
			_ = c.Conn().PgConn().Conn().Close() // pgx would drain it for up to 15 s, in which the pool counts it
		}
	}()
	defer func() { err = s.advised(err) }()
	warning(c.Conn().PgConn())
	err = f(c.Conn())
	if text := warning(c.Conn().PgConn()); text != "" && err == nil {
		err = unacknowledged(text)
	}
	return err
}

// Close implements rows.Store.
func (s *store) Close() {
	s.conns.close()
	s.pool.Close()
}

const (
	// limitStatements lets the server end a statement whose call has given up, for example one that waits for
	// the lock of a table. Otherwise each closed connection would leave a process of the server behind. It
	// changes nothing behind a pooler, because the session there serves other clients too.
	limitStatements = `SELECT set_config('statement_timeout', '3s', false)
WHERE pg_backend_pid() = $1::bigint AND (SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout') NOT BETWEEN 1 AND 3000`

	// unended counts the statements that the limit does not end: those that wait for a standby.
	unended = `SELECT count(*) FROM pg_stat_activity
WHERE usename = current_user AND wait_event = 'SyncRep' AND query_start < clock_timestamp() - interval '3 s'`
)

// newStore returns a store with a pool of its own, of at most that many connections.
func newStore(pool *pgxpool.Pool, o Options, most int32) (*store, error) {
	s := &store{texts: textsOf(table(o.Schema)), grants: grantsOf(o.Schema, pool.Config().ConnConfig.User), conns: &conns{}}
	conf := pool.Config()
	conf.MaxConns = most
	listen, prepare := o.Listen, conf.BeforeConnect
	if listen == nil {
		listen = conf.ConnConfig
	} else {
		prepare = nil
	}
	listen = listen.Copy()
	listen.OnNotification = nil // pgx would pass the notifications to it, not to WaitForNotification
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
	then := conf.AfterConnect
	conf.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, limitStatements, pgx.QueryExecModeExec, c.PgConn().PID()); err != nil {
			return err
		}
		var waiting int32
		if err := c.QueryRow(ctx, unended, pgx.QueryExecModeExec).Scan(&waiting); err != nil {
			return err
		}
		if waiting >= most {
			return &noStandbyError{waiting}
		}
		if then != nil {
			return then(ctx, c)
		}
		return nil
	}
	s.conns.own(conf.ConnConfig)
	var err error
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), conf); err != nil {
		return nil, fmt.Errorf("postgres: New: %w", err)
	}
	return s, nil
}
