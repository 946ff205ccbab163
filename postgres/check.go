package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The codes of the findings.
const (
	codeServer            doctor.Code = "server"             // version, round trip and clock of the server
	codeVersion           doctor.Code = "version"            // older than 13
	codeReadOnly          doctor.Code = "read-only"          // a standby, or transactions that may not write
	codeTable             doctor.Code = "table"              // the table is missing or UNLOGGED
	codeRights            doctor.Code = "rights"             // rights that the user does not have
	codeChannel           doctor.Code = "channel"            // notifications do not arrive
	codePooler            doctor.Code = "pooler"             // the pool connects to a pooler, not to the server
	codeFsync             doctor.Code = "fsync"              // a crash of the machine loses data
	codeFullPageWrites    doctor.Code = "full-page-writes"   // a crash of the machine can damage the table
	codeSynchronousCommit doctor.Code = "synchronous-commit" // grants do not wait for the disk, or for a standby's
	codeFailover          doctor.Code = "failover"           // no standby is synchronous
	codeStandbys          doctor.Code = "standbys"           // no synchronous standby is connected
	codeOpenTransaction   doctor.Code = "open-transaction"   // a transaction that keeps old versions of rows
	codeAutovacuum        doctor.Code = "autovacuum"         // nothing removes old versions of rows
	codeClock             doctor.Code = "clock"              // the clocks of server and process differ
	codeClockDrift        doctor.Code = "clock-drift"        // the server's clock jumps or runs at another rate
	codeLatency           doctor.Code = "latency"            // replies are slow for this lease
	codeNotSeen           doctor.Code = "not-seen"           // the user may not read some facts
)

const (
	checkTimeout = 30 * time.Second // of a whole Check
	echoTimeout  = 5 * time.Second
	longOpen     = 5 * time.Minute // an open transaction is a finding after this time
)

// Check is doctor.Check for PostgreSQL: it examines the server, the table, the rights of the user and
// the notifications of a Locker. Pass the arguments of New. Of o only Schema, Listen and Terms.Lease
// matter. It writes nothing, takes about a second, or 6 s if notifications do not arrive, and at most
// 35 s.
//
// The findings are sorted, worst first; docs/operate.md lists their codes. They are true at this moment.
// Without membership in pg_read_all_stats some facts are not seen, which is a finding too.
//
// Check returns the error of New, the cause of ctx, or an error that satisfies ErrUnavailable if the
// server could not be examined.
func Check(ctx context.Context, pool *pgxpool.Pool, o Options) ([]doctor.Finding, error) {
	return check(ctx, pool, o, longOpen)
}

func check(ctx context.Context, pool *pgxpool.Pool, o Options, open time.Duration) ([]doctor.Finding, error) {
	l, err := New(pool, o) // it checks the arguments
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close(ctx) }()
	s, err := newStore(pool, o, 2)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e := &examination{store: s, o: o, open: open, lease: l.Terms().Lease}
	bound, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = e.run(bound)
	var old *oldServerError
	switch {
	case errors.As(err, &old):
		e.say(codeVersion, doctor.SeverityProblem, "PostgreSQL "+old.version, "A Locker refuses it: its statements are not tested on it.", "Update to PostgreSQL 13 or later.")
	case err != nil && backend.Ended(ctx):
		return nil, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	case err != nil:
		return nil, errtext.Wrap(lockcore.ErrUnavailable, err)
	}
	worst := []doctor.Severity{doctor.SeverityProblem, doctor.SeverityWarning, doctor.SeverityNote}
	slices.SortStableFunc(e.findings, func(a, b doctor.Finding) int {
		return cmp.Compare(slices.Index(worst, a.Severity), slices.Index(worst, b.Severity))
	})
	return e.findings, nil
}

// examination is one Check.
type examination struct {
	*store
	o           Options
	open, lease time.Duration
	node        string
	samples     []clock.Sample
	findings    []doctor.Finding
	facts
}

// facts are what the server says of itself and of this session.
type facts struct {
	PID                                                uint32
	Standby, ReadOnly, Autovacuum, Stats               bool
	Fsync, FullPageWrites, SynchronousCommit, Standbys string
	User, Version                                      string
	Connected                                          int // synchronous standbys; right only with Stats
}

func (e *examination) say(code doctor.Code, s doctor.Severity, seen, consequence, remedy string) {
	e.findings = append(e.findings, doctor.Finding{Code: code, Severity: s, Node: e.node, Seen: seen, Consequence: consequence, Remedy: remedy})
}

func (e *examination) run(ctx context.Context) error {
	c, err := e.pool.Acquire(dialing(ctx))
	if err != nil {
		return err
	}
	defer c.Release()
	e.node = c.Conn().PgConn().Conn().RemoteAddr().String()
	found, err := c.Query(ctx, `SELECT pg_backend_pid() AS pid, pg_is_in_recovery() AS standby, current_setting('transaction_read_only')::bool AS readonly,
  current_setting('autovacuum')::bool AS autovacuum, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS stats, current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS fullpagewrites, current_setting('synchronous_commit') AS synchronouscommit, current_setting('synchronous_standby_names') AS standbys,
  current_user AS user, current_setting('server_version') AS version,
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS connected`, pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	if e.facts, err = pgx.CollectExactlyOneRow(found, pgx.RowToStructByName[facts]); err != nil {
		return err
	}
	if e.samples, err = clock.Measure(ctx, func() (at time.Time, err error) {
		return at, c.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeExec).Scan(&at)
	}); err != nil {
		return err
	}
	e.checkServer()
	e.checkCrash()
	e.checkFailover()
	e.checkPooler(c.Conn())
	if err := e.checkTable(ctx, c.Conn()); err != nil {
		return err
	}
	if err := e.checkOpen(ctx, c.Conn()); err != nil {
		return err
	}
	if !e.Standby { // it has no LISTEN
		e.checkChannel(ctx)
	}
	return ctx.Err()
}

// checkServer reports the server, and examines its clock and its latency.
func (e *examination) checkServer() {
	p50, p99, worst := clock.Latency(e.samples)
	trips := fmt.Sprintf("%d round trips: p50 %v, p99 %v, max %v", len(e.samples), p50, p99, worst)
	best := clock.Quickest(e.samples)
	e.say(codeServer, doctor.SeverityNote, fmt.Sprintf("PostgreSQL %s; %s; clock %+.1f ms to %.1f ms", e.Version, trips, float64(best.Offset())/1e6, float64(best.Took)/2e6),
		"This server was checked. The times are those of this moment.", "Nothing to do.")
	if off, apart := clock.Apart(e.samples); apart {
		e.say(codeClock, doctor.SeverityWarning, fmt.Sprintf("the server's clock is %v %s this process's", off.Abs().Round(time.Millisecond), clock.AheadOf(off)),
			"Leases work, because only durations are sent. But when the server's clock is corrected and jumps forward, leases end before their holders notice.",
			"Let both machines follow NTP by slewing, not by stepping.")
	}
	if here, drift, drifts := clock.Drift(e.samples); drifts {
		e.say(codeClockDrift, doctor.SeverityProblem, fmt.Sprintf("in %v of this process the server's clock advanced by %v", here.Round(time.Millisecond), (here+drift).Round(time.Millisecond)),
			"A lease ends by the server's clock: if that clock jumps or runs fast by more than 1 %, a second holder may run.",
			"Look at the server's clock (NTP, a virtual machine that was moved or paused) and let it be slewed, not stepped.")
	}
	seen, remedy := fmt.Sprintf("%s; the lease is %v", trips, e.lease), "Find out what is slow (network, CPU, disk), or use a longer Terms.Lease."
	switch {
	case worst > e.lease/10 || worst > backend.CallTimeout*9/10:
		e.say(codeLatency, doctor.SeverityProblem, seen,
			fmt.Sprintf("A lease is renewed after a third of its time and canceled a tenth before its end, and a statement may take %v. Replies as slow as these use up that time, and leases are lost.", backend.CallTimeout), remedy)
	case worst > e.lease/100:
		e.say(codeLatency, doctor.SeverityWarning, seen, "Every acquire and release takes that long, and slow replies use up part of a lease.", remedy)
	}
	switch {
	case e.Standby:
		e.say(codeReadOnly, doctor.SeverityProblem, "the server is a standby", "It accepts no write, so no key can be acquired or renewed.",
			"Connect to the primary: name all servers in the DSN, and add target_session_attrs=read-write.")
	case e.ReadOnly:
		e.say(codeReadOnly, doctor.SeverityProblem, "default_transaction_read_only is on", "Transactions may not write, so no key can be acquired or renewed.",
			"Set it to off for the user and the database.")
	}
}

// checkCrash examines what a crash loses.
func (e *examination) checkCrash() {
	if e.Fsync == "off" {
		e.say(codeFsync, doctor.SeverityProblem, "fsync is off", "If the machine crashes, held keys and records are lost, and the whole database may be damaged. Then two holders run, and done work runs again.",
			"Set fsync = on.")
	}
	if e.FullPageWrites == "off" {
		e.say(codeFullPageWrites, doctor.SeverityWarning, "full_page_writes is off", "If the machine crashes while it writes a page, rows of that page are lost or wrong.",
			"Set full_page_writes = on, unless the file system writes pages as a whole.")
	}
	switch {
	case (e.SynchronousCommit == "local" || e.SynchronousCommit == "remote_write") && e.Standbys != "":
		e.say(codeSynchronousCommit, doctor.SeverityWarning, "synchronous_commit is "+e.SynchronousCommit+", although synchronous_standby_names is set",
			"Grants and records do not wait for the standby's disk, so a failover can lose them.", "Set synchronous_commit to on, or higher, for the user of the Locker.")
	case e.SynchronousCommit == "off":
		e.say(codeSynchronousCommit, doctor.SeverityNote, "synchronous_commit is off", "The Locker sets it to on for what must not be lost: grants, renewals and records.", "Nothing to do.")
	}
}

// checkFailover examines the standbys.
func (e *examination) checkFailover() {
	switch {
	case e.Standby:
	case e.Standbys == "":
		e.say(codeFailover, doctor.SeverityNote, "synchronous_standby_names is empty", "A failover to a standby can lose the last grants and records: two holders may run for a lease, and done work may run again.",
			"Make a standby synchronous if that costs you more than slower writes. Without a standby there is no failover.")
	case e.Connected == 0 && e.Stats:
		e.say(codeStandbys, doctor.SeverityProblem, fmt.Sprintf("synchronous_standby_names is %q, and no such standby is connected", e.Standbys),
			"Each grant, renewal and record waits for one, so calls end with ErrUnavailable, and leases are lost.", "Start the standby again, or name another one.")
	}
	if !e.Stats {
		e.say(codeNotSeen, doctor.SeverityNote, fmt.Sprintf("%s is no member of pg_read_all_stats", e.User),
			"Standbys and the transactions of other users were not seen. A Locker of this user does not see which Lockers of other users listen: their processes get a key only when they ask again.",
			fmt.Sprintf("If there are several users: GRANT pg_read_all_stats TO %s.", pgx.Identifier{e.User}.Sanitize()))
	}
}

// checkPooler compares the process at the other end with the one that said hello.
func (e *examination) checkPooler(c *pgx.Conn) {
	if e.PID == c.PgConn().PID() {
		return
	}
	seen := "a pooler is between the pool and the server"
	if c.Config().DefaultQueryExecMode == pgx.QueryExecModeExec || c.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		e.say(codePooler, doctor.SeverityNote, seen, "Statements work in transaction mode. Notifications need a connection to the server itself.", "Set Options.Listen.")
		return
	}
	e.say(codePooler, doctor.SeverityWarning, seen+", and statements are prepared", "In transaction mode a prepared statement may be on another connection of the pooler: calls then fail.",
		"Set default_query_exec_mode=exec in the DSN of the pool, unless the pooler keeps prepared statements (PgBouncer 1.21 with max_prepared_statements) or pools sessions. Set Options.Listen.")
}

// checkTable examines the table, and the rights of the user on it.
func (e *examination) checkTable(ctx context.Context, c *pgx.Conn) error {
	var schema string
	var unlogged, vacuumed, usage bool
	var lacks []string
	err := c.QueryRow(ctx, `SELECT n.nspname, c.relpersistence = 'u', coalesce((SELECT option_value::bool FROM pg_options_to_table(c.reloptions) WHERE option_name = 'autovacuum_enabled'), true),
  has_schema_privilege(n.oid, 'USAGE'), array(SELECT p FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p WHERE NOT has_table_privilege(c.oid, p))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'holdfast_keys' AND c.relkind IN ('r', 'p') AND (n.nspname = $1 OR $1 = '' AND n.nspname = ANY(current_schemas(false)))
ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1`, pgx.QueryExecModeExec, e.o.Schema).Scan(&schema, &unlogged, &vacuumed, &usage, &lacks)
	if errors.Is(err, pgx.ErrNoRows) {
		e.say(codeTable, doctor.SeverityProblem, fmt.Sprintf("there is no table %s", table(e.o.Schema)), "No key can be acquired.",
			fmt.Sprintf("Execute the statements that postgres.Create(%q) returns, or set the right Options.Schema (-schema).", e.o.Schema))
		return nil
	}
	if err != nil {
		return err
	}
	to, name := pgx.Identifier{e.User}.Sanitize(), pgx.Identifier{schema, "holdfast_keys"}.Sanitize()
	if unlogged {
		e.say(codeTable, doctor.SeverityProblem, name+" is UNLOGGED", "A crash of the server empties it: two holders run, and done work runs again.", fmt.Sprintf("ALTER TABLE %s SET LOGGED.", name))
	}
	var grants []string
	if !usage {
		grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", pgx.Identifier{schema}.Sanitize(), to))
	}
	if len(lacks) > 0 {
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(lacks, ", "), name, to))
	}
	if len(grants) > 0 {
		if !usage {
			lacks = append(lacks, "USAGE of its schema")
		}
		e.say(codeRights, doctor.SeverityProblem, fmt.Sprintf("%s lacks rights on %s: %s", e.User, name, strings.Join(lacks, ", ")), "Calls that need them fail with ErrUnavailable.",
			"As the owner: "+strings.Join(grants, "; ")+".")
	}
	if off := map[bool]string{true: "autovacuum_enabled is off for " + name, false: "autovacuum is off"}; !vacuumed || !e.Autovacuum {
		e.say(codeAutovacuum, doctor.SeverityWarning, off[e.Autovacuum], "Each write leaves an old version of its row. If nothing removes them, calls get slower, and the table grows without end.",
			"Turn it on, or run VACUUM on the table every few minutes.")
	}
	return nil
}

// checkOpen looks for a transaction that has been open for long.
func (e *examination) checkOpen(ctx context.Context, c *pgx.Conn) error {
	var pid int
	var user, state string
	var age float64
	err := c.QueryRow(ctx, `SELECT pid, coalesce(usename, ''), coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start IS NOT NULL AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
ORDER BY xact_start LIMIT 1`, pgx.QueryExecModeExec).Scan(&pid, &user, &state, &age)
	open := time.Duration(age * float64(time.Second))
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && open < e.open:
		return nil
	case err != nil:
		return err
	}
	e.say(codeOpenTransaction, doctor.SeverityWarning, fmt.Sprintf("a transaction of %s has been open for %v (pid %d, %s)", user, open.Round(time.Millisecond), pid, state),
		"Old versions of all rows stay until it ends. After 10,000 writes of a key each call costs the server 3.6 times as much.",
		fmt.Sprintf("End it: SELECT pg_terminate_backend(%d). Set idle_in_transaction_session_timeout.", pid))
	return nil
}

// checkChannel sends a notification, as a Locker does.
func (e *examination) checkChannel(ctx context.Context) {
	id, why := rand.Text(), ""
	ctx, cancel := context.WithTimeout(ctx, echoTimeout)
	defer cancel()
	switch conn, err := e.listenOn(ctx, id); {
	case err != nil:
		why = ": " + err.Error()
	default:
		defer hangUp(ctx, conn)
		if e.echo(ctx, conn, id, func(backend.Notification) {}) {
			return
		}
	}
	e.say(codeChannel, doctor.SeverityWarning, "notifications do not arrive"+why,
		"A call that waits in another process asks only every 2 s, and others may overtake it. A revoked holder notices with its next renewal.",
		"If the pool connects to a pooler: set Options.Listen to the address of PostgreSQL itself.")
}
