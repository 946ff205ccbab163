// Package postgres makes Lockers whose keys are rows of a table in PostgreSQL.
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db/app")
//	…
//	_, err = pool.Exec(ctx, postgres.Create("")) // once, with the migrations of the application
//	…
//	locks, err := postgres.New(pool, postgres.Options{})
//
// A Locker does all that one on Redis does: leases, fencing tokens, records, shares, rates, tickets,
// parked tasks, and the calls for operators. A held lease needs neither a connection nor a transaction.
//
//   - Grants, renewals and records survive a crash of the server, because they wait for its disk. The
//     release of an exclusive key does not wait: if the server crashes within 0.6 s (three times
//     wal_writer_delay), the key may be busy until its lease ends.
//   - With a synchronous standby (synchronous_standby_names) a failover loses nothing that was
//     acknowledged. With an asynchronous one it can lose grants, as with Redis.
//   - The table must not be UNLOGGED, because a crash empties such a table.
//   - Each key is a row. Once an hour each Locker deletes the rows whose data expired one to two hours
//     ago. The row of a released key stays for a day and its lease, as if its holder had died.
//   - A transaction that stays open for long keeps old versions of the rows, which makes calls slower.
//
// The table is for PostgreSQL 13 and later.
package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rows"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// Options are those of lockcore.New. Prefix and ReplicaAcks must not be set, and NoGroups has no
	// effect.
	lockcore.Options
	// Schema is the schema of the table. Lockers exclude each other only in the same one. Default: the
	// search path decides.
	Schema string
	// Listen is how to connect for notifications. Default: as the pool does. If the pool connects to a
	// pooler in transaction mode, set the address of PostgreSQL itself. Without notifications a waiting
	// call asks every 2 s, and those of other processes may overtake it.
	Listen *pgx.ConnConfig
}

// Validate reports every problem of o at once.
func (o Options) Validate() error { return o.Options.Validate() }

// Create returns the statements that create the table holdfast_keys and its index in a schema, if they
// do not exist. An empty schema means the first one of the search path; another one must exist. Execute them once, before the
// first New, and not in several programs at the same time, because PostgreSQL may then report a
// violated unique constraint.
//
// A Locker needs the rights to SELECT, INSERT, UPDATE and DELETE, and USAGE of the schema;
// docs/security.md has the statements. Lockers of several database users must be members of
// pg_read_all_stats: otherwise they do not see which Lockers listen, and a key passes on to the
// processes of the other users only when they ask again.
func Create(schema string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %[1]s (
  name        bytea  PRIMARY KEY, -- x:NAME or o:NAME
  version     bigint NOT NULL,    -- another one after each write
  owner       bytea,              -- to expires: of a plain hold
  locker      bytea,
  holder      bytea,
  fingerprint bytea,
  lease_end   bigint,             -- times in µs
  length      bigint,
  expires     bigint,
  token       bigint NOT NULL,
  due         int    NOT NULL,    -- hour from which Purge looks at the row; only grows, so that updates are HOT
  data        bytea               -- of any other key
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS holdfast_keys_due ON %[1]s (due);
`, table(schema))
}

// New returns a Locker whose keys are rows of the table that Create creates. It sends no command. Make
// one Locker per process.
//
// The Locker makes two pools of its own with the options and hooks of pool, so that neither your
// transactions nor calls that acquire keys delay a renewal. One has up to MaxConns connections, the other
// half as many, at least 2. They are opened as needed, so MinConns and MinIdleConns have no effect. One more
// connection gets notifications. Without a pooler the server ends a statement of theirs after 3 s, or after
// the statement_timeout that it has if that is shorter. It ends no wait for a synchronous standby. So a pool
// opens no connection while as many statements of its user as it may have connections wait for a standby for
// more than 3 s. [lockcore.Locker.Close] closes the connections, never pool.
//
// New returns an error if pool is nil or o is not valid. The error satisfies lockcore.ErrUnsupported if
// o.ReplicaAcks or o.Prefix is set: use synchronous_standby_names, or o.Schema.
func New(pool *pgxpool.Pool, o Options) (*lockcore.Locker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l, err := access.New(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
		b, err := open(pool, common, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	})
	if err != nil {
		return nil, err
	}
	locks, _ := l.(*lockcore.Locker)
	return locks, nil
}

func open(pool *pgxpool.Pool, common backend.Options, o Options) (*rows.Backend, error) {
	switch {
	case pool == nil:
		return nil, errors.New("postgres: New: pool is nil")
	case o.ReplicaAcks.N != 0:
		return nil, unsupported("ReplicaAcks", "synchronous_standby_names of the server")
	case o.Prefix != "":
		return nil, unsupported("Prefix", "Options.Schema")
	}
	most := pool.Config().MaxConns
	calls, err := newStore(pool, o, most)
	if err != nil {
		return nil, err
	}
	calls.misconfigured = common.Misconfigured
	ends, err := newStore(pool, o, max(most/2, 2))
	if err != nil {
		calls.Close()
		return nil, err
	}
	return rows.New(rows.Options{Options: common, Name: "postgres", Calls: calls, Ends: ends, ListeningFor: listeningFor}), nil
}

func unsupported(what, instead string) error {
	return fmt.Errorf("%w on PostgreSQL: %s: use %s", backend.ErrUnsupported, what, instead)
}

// Purge deletes the rows whose data expired one to two hours ago, and returns how many. Each Locker does so
// every hour, so a program needs Purge only if it wants to do so earlier. It uses only o.Schema. Only
// ctx bounds its time.
func Purge(ctx context.Context, pool *pgxpool.Pool, o Options) (int64, error) {
	if pool == nil {
		return 0, errors.New("postgres: Purge: pool is nil")
	}
	return rows.Purge(ctx, &store{pool: pool, texts: textsOf(table(o.Schema)), grants: grantsOf(o.Schema, pool.Config().ConnConfig.User)})
}

// table returns the name of the table in a statement.
func table(schema string) string {
	if schema == "" {
		return "holdfast_keys"
	}
	return pgx.Identifier{schema, "holdfast_keys"}.Sanitize()
}
