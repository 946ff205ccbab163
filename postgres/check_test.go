//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// with returns a pool for the database of another one, with more settings in its DSN.
func with(t *testing.T, pool *pgxpool.Pool, settings string) *pgxpool.Pool {
	t.Helper()
	return connect(t, pool.Config().ConnString()+" "+settings)
}

// findings compares the codes and severities of the findings with those of want, as in "problem rights".
// It returns the findings by their codes.
func findings(t *testing.T, pool *pgxpool.Pool, o postgres.Options, want ...string) map[doctor.Code]doctor.Finding {
	t.Helper()
	all, err := postgres.Check(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return compare(t, all, want)
}

func compare(t *testing.T, all []doctor.Finding, want []string) map[doctor.Code]doctor.Finding {
	t.Helper()
	found, codes := map[doctor.Code]doctor.Finding{}, []string{}
	for _, f := range all {
		if f.Code == "latency" { // a busy machine is slow
			continue
		}
		found[f.Code] = f
		codes = append(codes, fmt.Sprintf("%s %s", f.Severity, f.Code))
		if f.Node == "" || f.Seen == "" || f.Consequence == "" || f.Remedy == "" {
			t.Errorf("a part is missing: %+v", f)
		}
	}
	if !slices.IsSortedFunc(codes, func(a, b string) int { return strings.Compare(order[a[:4]], order[b[:4]]) }) {
		t.Errorf("not sorted: %q", codes)
	}
	slices.Sort(codes)
	slices.Sort(want)
	if !slices.Equal(codes, want) {
		t.Errorf("findings %q, want %q:\n%v", codes, want, all)
	}
	return found
}

var order = map[string]string{"prob": "1", "warn": "2", "note": "3"}

// fast are the findings of a server with the settings of the tests.
func fast(more ...string) []string {
	return append([]string{"note server", "problem fsync", "warning full-page-writes", "note synchronous-commit", "note failover"}, more...)
}

// role makes a user without rights, and returns a pool of it.
func role(t *testing.T, pool *pgxpool.Pool) (name string, as *pgxpool.Pool) {
	t.Helper()
	name = fmt.Sprintf("user of %s", pool.Config().ConnConfig.Database)
	id := pgx.Identifier{name}.Sanitize()
	run(t, pool, "CREATE ROLE "+id+" LOGIN")
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "DROP OWNED BY "+id)
		_, _ = pool.Exec(context.Background(), "DROP ROLE "+id)
	})
	return id, with(t, pool, "user='"+name+"'")
}

// Check finds what is wrong with the table, and names the statements that mend it.
// Shows: D4
func TestCheckTable(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	findings(t, pool, postgres.Options{}, fast()...)
	missing := findings(t, pool, postgres.Options{Schema: "nowhere"}, fast("problem table")...)["table"]
	if want := `postgres.Create("nowhere")`; !strings.Contains(missing.Remedy, want) {
		t.Errorf("the remedy is %q, want %s in it", missing.Remedy, want)
	}
	for _, c := range []struct{ set, back, want string }{
		{"SET UNLOGGED", "SET LOGGED", "problem table"},
		{"SET (autovacuum_enabled = off)", "RESET (autovacuum_enabled)", "warning autovacuum"},
	} {
		run(t, pool, "ALTER TABLE holdfast_keys "+c.set)
		findings(t, pool, postgres.Options{}, fast(c.want)...)
		run(t, pool, "ALTER TABLE holdfast_keys "+c.back)
	}
	run(t, pool, "CREATE SCHEMA locks")
	run(t, pool, postgres.Create("locks"))
	id, as := role(t, pool)
	run(t, pool, "GRANT SELECT ON locks.holdfast_keys TO "+id)
	o := postgres.Options{Schema: "locks"}
	mend := findings(t, as, o, fast("problem rights", "note not-seen")...)["rights"].Remedy
	if want := `GRANT USAGE ON SCHEMA "locks" TO ` + id + `; GRANT INSERT, UPDATE, DELETE ON "locks"."holdfast_keys" TO ` + id; !strings.Contains(mend, want) {
		t.Errorf("the remedy is %q, want %s in it", mend, want)
	}
	run(t, pool, strings.TrimSuffix(strings.TrimPrefix(mend, "As the owner: "), "."))
	mend = findings(t, as, o, fast("note not-seen")...)["not-seen"].Remedy
	run(t, pool, strings.TrimSuffix(strings.TrimPrefix(mend, "If there are several users: "), "."))
	findings(t, as, o, fast()...)
}

// Check finds what the session says: transactions that may not write, a transaction that stays open, and
// a clock that is wrong, jumps or is slow.
// Shows: D4
func TestCheckSession(t *testing.T) {
	testlevel.Full(t)
	pool := database(t)
	findings(t, with(t, pool, "options='-c default_transaction_read_only=on'"), postgres.Options{}, fast("problem read-only")...)
	for _, c := range []struct{ clock, want string }{
		{"pg_catalog.clock_timestamp() + interval '1 hour'", "warning clock"},
		{"pg_catalog.now() + 100 * (pg_catalog.clock_timestamp() - 'TIME')", "problem clock-drift"},
		{"pg_catalog.clock_timestamp() FROM pg_catalog.pg_sleep(0.02)", "warning latency"},
		{"pg_catalog.clock_timestamp() FROM pg_catalog.pg_sleep(0.11)", "problem latency"},
	} {
		var now string
		if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()::text").Scan(&now); err != nil {
			t.Fatal(err)
		}
		run(t, pool, "CREATE SCHEMA lies")
		run(t, pool, "CREATE FUNCTION lies.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT "+strings.ReplaceAll(c.clock, "TIME", now)+" $$")
		o := postgres.Options{Options: lockcore.Options{Terms: lockcore.Terms{Lease: time.Second}}}
		all, err := postgres.Check(t.Context(), with(t, pool, "options='-c search_path=lies,pg_catalog,public'"), o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(f doctor.Finding) bool { return c.want == fmt.Sprintf("%s %s", f.Severity, f.Code) }) {
			t.Errorf("%s: no %s in %v", c.clock, c.want, all)
		}
		run(t, pool, "DROP SCHEMA lies CASCADE")
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "CREATE TABLE other ()"); err != nil {
		t.Fatal(err)
	}
	findings(t, pool, postgres.Options{}, fast()...) // it is young
	all, err := postgres.CheckOpen(t.Context(), pool, postgres.Options{}, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	open := compare(t, all, fast("warning open-transaction"))["open-transaction"]
	if want := fmt.Sprintf("pg_terminate_backend(%d)", tx.Conn().PgConn().PID()); !strings.Contains(open.Remedy, want) {
		t.Errorf("the remedy is %q, want %s in it", open.Remedy, want)
	}
}

// Check finds settings of the server and its standbys, and a standby that was taken for a primary.
// Shows: D4
func TestCheckServer(t *testing.T) {
	testlevel.Full(t)
	pgtest.Need(t)
	server, err := pgtest.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	pool := connect(t, server.DSN("postgres"))
	run(t, pool, postgres.Create(""))
	findings(t, pool, postgres.Options{}, "note server", "note failover")
	set := func(setting, value string) {
		t.Helper()
		run(t, pool, "ALTER SYSTEM SET "+setting+" = "+value)
		run(t, pool, "SELECT pg_reload_conf()")
		until(t, pool, "SELECT setting = '"+value+"' FROM pg_settings WHERE name = '"+setting+"'")
	}
	id, as := role(t, pool)
	run(t, pool, "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_keys TO "+id)
	set("synchronous_standby_names", "nobody")
	findings(t, pool, postgres.Options{}, "note server", "problem standbys")
	findings(t, as, postgres.Options{}, "note server", "note not-seen")
	findings(t, with(t, pool, "options='-c synchronous_commit=local'"), postgres.Options{}, "note server", "problem standbys", "warning synchronous-commit")
	set("autovacuum", "off")
	findings(t, pool, postgres.Options{}, "note server", "problem standbys", "warning autovacuum")
	if err := server.Standby(); err != nil {
		t.Fatal(err)
	}
	until(t, pool, "SELECT pg_is_in_recovery()")
	findings(t, pool, postgres.Options{}, "note server", "problem read-only", "warning autovacuum")
	refused(t, pool, postgres.Options{}, "target_session_attrs=read-write")
}

// Check finds a pooler, and whether notifications arrive.
// Shows: D4
func TestCheckPooler(t *testing.T) {
	testlevel.Full(t)
	direct := database(t)
	pool := pooler(t, direct)
	listen := direct.Config().ConnConfig
	findings(t, pool, postgres.Options{}, fast("note pooler", "warning channel")...)
	findings(t, pool, postgres.Options{Listen: listen}, fast("note pooler")...)
	conf := pool.Config()
	conf.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	prepares, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prepares.Close)
	all, err := postgres.Check(t.Context(), prepares, postgres.Options{Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(f doctor.Finding) bool { return f.Code == "pooler" && f.Severity == doctor.SeverityWarning }) {
		t.Errorf("statements are prepared behind a pooler: %v", all)
	}
	nowhere := connect(t, "host=/nonexistent user=postgres").Config().ConnConfig
	if f := findings(t, direct, postgres.Options{Listen: nowhere}, fast("warning channel")...)["channel"]; !strings.Contains(f.Seen, "/nonexistent") {
		t.Errorf("the finding does not say why: %v", f)
	}
}

// aged returns a pool of a database on a server that says that it is version 12.
func aged(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	dir := t.TempDir()
	const socket = "/.s.PGSQL.5432"
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", dir+socket)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile("server_version\x00[0-9]+")
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "unix", pool.Config().ConnConfig.Host+socket)
			if err != nil {
				_ = client.Close()
				continue
			}
			pass := func(from, to net.Conn, change func([]byte) []byte) {
				defer func() { _, _ = from.Close(), to.Close() }()
				for b := make([]byte, 1<<16); ; {
					n, err := from.Read(b)
					if err != nil {
						return
					}
					if _, err := to.Write(change(b[:n])); err != nil {
						return
					}
				}
			}
			wg.Go(func() { pass(client, server, func(b []byte) []byte { return b }) })
			wg.Go(func() {
				pass(server, client, func(b []byte) []byte { return version.ReplaceAll(b, []byte("server_version\x0012")) })
			})
		}
	})
	return with(t, pool, "host="+dir)
}

// Check finds a server that is too old, and returns an error if it examined nothing.
// Shows: D4
func TestCheckWithoutFacts(t *testing.T) {
	pool := database(t)
	all, err := postgres.Check(t.Context(), aged(t, pool), postgres.Options{})
	if err != nil || len(all) != 1 || all[0].Code != "version" || all[0].Severity != doctor.SeverityProblem || !strings.HasPrefix(all[0].Seen, "PostgreSQL 12.") {
		t.Errorf("on version 12: %v, %v", all, err)
	}
	if _, err := postgres.Check(t.Context(), connect(t, "host=/nonexistent user=postgres"), postgres.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	if _, err := postgres.Check(t.Context(), pool, postgres.Options{Options: lockcore.Options{Prefix: "p"}}); !errors.Is(err, lockcore.ErrUnsupported) {
		t.Errorf("with options that New refuses: %v", err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := postgres.Check(ctx, pool, postgres.Options{}); !errors.Is(err, gone) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// The table of docs/operate.md has exactly the codes of Check, with their severities and the
// descriptions of the constants.
func TestCheckDocs(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	code := read("check.go")
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^\t(code\w+) +doctor\.Code = "([a-z-]+)" +// (.*)$`).FindAllStringSubmatch(code, -1) {
		var severities []string
		for _, s := range []string{"Problem", "Warning", "Note"} {
			if strings.Contains(code, m[1]+", doctor.Severity"+s) {
				severities = append(severities, strings.ToLower(s))
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m[2], strings.Join(severities, ", "), m[3]))
	}
	if table := "| code on PostgreSQL | severity | reports |\n|---|---|---|\n" + strings.Join(rows, "") + "\n"; len(rows) < 15 || !strings.Contains(read("../docs/operate.md"), table) {
		t.Errorf("docs/operate.md does not have this table:\n%s", table)
	}
}
