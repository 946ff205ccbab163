package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// postgresScenarios are those of a Locker of module postgres.
func postgresScenarios() []scenario {
	all := load{Hot: 4, Any: 6, Long: 2, Once: 6}
	losesTime := rules{fewLost: true, permits: []string{"unavailable", "lost"}}
	struck := func(r *run, _ *verdict) bool { return r.base.tried > 0 && r.base.tried == len(r.failed) }
	lost := func(r *run, v *verdict) bool {
		return r.base.lostGrants > 0 && r.base.lostRecords > 0 && v.overlaps > 0
	}
	return []scenario{
		// As the scenarios of one Redis with these names. No command of the network has a point.
		{
			name: "postgres, kills", procs: 4, load: all, wait: patience, on: onPostgres,
			happens: func(r *run) {
				points := ofHandlers(killPoints)
				r.inTurn(*kills/3, 1, func(p *slot, i int) { p.kill(points[i%len(points)]); p.begin() })
			},
			proves: func(r *run, v *verdict) bool {
				return r.reached() >= *kills/4 && v.counts["abandoned"] > 0 && v.takeovers > 0 && v.unknown > 0
			},
		},
		{
			name: "postgres, stops", procs: 4, load: load{Hot: 2, Any: 6, Long: 2, Calm: true}, wait: patience, on: onPostgres,
			happens: func(r *run) {
				points := ofHandlers(stopPoints)
				n := *stops / 4
				r.inTurn(n, 2, func(p *slot, i int) {
					p.stop(points[i%len(points)], lease/2+lease*5/2*time.Duration(i)/time.Duration(n))
				})
			},
			proves: func(_ *run, v *verdict) bool {
				return v.overtaken > 0 && v.rejected >= v.overtaken && v.counts["lost"] > 0
			},
		},
		{
			name: "postgres, shares", procs: 8, load: load{Shares: 12}, wait: lockcore.Forever, on: onPostgres,
			happens: func(r *run) { r.disturb(*runFor, 3, shareFault); r.countPermits() },
			proves: func(r *run, v *verdict) bool {
				return len(r.deaths) > 0 && len(r.disturbed) > 0 && v.counts["lost"] > 0
			},
		},

		// Connections are ended, each at a random moment: this costs time only.
		{
			name: "postgres, connections end", procs: 8, load: all, wait: patience, on: onPostgres, happens: endConnections,
			must:   rules{gap: lease + recovery + gap, permits: []string{"unavailable"}},
			proves: func(r *run, _ *verdict) bool { return r.base.ended > 100 },
		},

		// The server is killed when its process that writes the log was stopped for a time, and started
		// again: no grant and no record is lost. In the control no statement waits for the disk.
		failing("postgres, crashes", onPostgres, crash(func() int { return *crashes }, lease/10), losesTime, struck),
		failing("postgres, crashes, control", notDurable, crash(func() int { return max(*crashes/3, 1) }, lease/2), planLoses, lost),

		// The server is killed when its standby has got nothing for a time, and the standby is promoted.
		// In the control no statement waits for the standby.
		failing("postgres, promotions", withStandby, promoteSynchronous, losesTime, struck),
		failing("postgres, promotions, control", withStandby, promoteAsynchronous, planLoses, lost),
	}
}

func failing(name string, on, happens func(*run), must rules, proves func(*run, *verdict) bool) scenario {
	must.gap = failoverGap
	return scenario{
		name: name, procs: 8, load: load{Hot: 2, Any: 4, Long: 1, Once: 3, Calm: true}, wait: patience,
		on: on, must: must, proves: proves,
		happens: func(r *run) {
			happens(r)
			r.Logf("%d faults; of a grant and a record just before each, %d grants and %d records are lost", r.base.tried, r.base.lostGrants, r.base.lostRecords)
		},
	}
}

func crash(n func() int, after time.Duration) func(*run) {
	return func(r *run) {
		for range n() {
			r.survives(func() { r.base.stop(r, "walwriter") }, func() {
				time.Sleep(after)
				r.base.kill(r)
				r.check("the server starts", r.base.primary.Begin())
			})
		}
	}
}

func promoteSynchronous(r *run) {
	for range *promotions {
		r.base.exec(r, `ALTER SYSTEM SET synchronous_standby_names = '*'`)
		r.base.exec(r, `SELECT pg_reload_conf()`)
		r.base.follows(r, "sync")
		r.survives(func() {}, func() {
			r.base.stop(r, "walsender")
			time.Sleep(lease / 10)
			r.base.promote(r)
		})
		r.check("the old primary follows", r.base.standby.Follow(r.base.primary))
	}
}

// promoteAsynchronous stops the sender before the grant and the record.
func promoteAsynchronous(r *run) {
	for range *promotions {
		r.base.follows(r, "async")
		r.survives(func() { r.base.stop(r, "walsender") }, func() {
			time.Sleep(lease / 2)
			r.base.promote(r)
		})
		r.check("the old primary follows", r.base.standby.Follow(r.base.primary))
	}
}

// ofHandlers returns the points that are steps of handlers.
func ofHandlers(points []order) []order {
	return slices.DeleteFunc(slices.Clone(points), func(o order) bool { return strings.Contains(o.Point, " ") })
}

// database is a server of PostgreSQL, with or without a standby, and what happened to it.
type database struct {
	primary, standby        *pgtest.Server
	ended                   int // connections
	stopped                 int // process of the primary
	tried                   int // grants and records before a fault
	lostGrants, lostRecords int
}

// dataInMemory are the settings of a server that may be killed, but whose machine does not fail. Only the
// statements themselves say what waits for the disk.
const dataInMemory = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off -c wal_buffers=16MB -c max_connections=300"

func onPostgres(r *run) {
	pgtest.Need(r)
	s, err := pgtest.Start(dataInMemory)
	if err != nil {
		r.Fatal(err)
	}
	r.base = &database{primary: s}
	r.Cleanup(func() { r.base.primary.Stop() })
	r.base.exec(r, postgres.Create(""))
	r.task.Client, r.task.Addrs = "postgres", []string{s.DSN("postgres")}
}

// notDurable makes each statement one that does not wait for the disk.
func notDurable(r *run) {
	onPostgres(r)
	r.base.exec(r, `CREATE SCHEMA fake`)
	r.base.exec(r, `CREATE FUNCTION fake.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT pg_catalog.set_config($1, CASE $1 WHEN 'synchronous_commit' THEN 'off' ELSE $2 END, $3) $$`)
	r.base.exec(r, `ALTER DATABASE postgres SET search_path = fake, pg_catalog, public`)
}

func withStandby(r *run) {
	onPostgres(r)
	pgtest.NeedOnly(r, "pg_basebackup")
	s, err := pgtest.StartStandby(r.base.primary, dataInMemory)
	if err != nil {
		r.Fatal(err)
	}
	r.base.standby = s
	r.Cleanup(func() { r.base.standby.Stop() })
	r.task.Addrs = []string{fmt.Sprintf("host=%s,%s user=postgres dbname=postgres target_session_attrs=read-write", r.base.primary.Dir, s.Dir)}
}

// locker returns a Locker of the test.
func (d *database) locker(r *run, o lockcore.Options) *lockcore.Locker {
	locks, pools, err := connect(r.task, nil, o)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(background(), 10*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			r.Errorf("close: %v", err)
		}
		_ = pools[0].Close()
	})
	return locks
}

// query asks the primary, and exec tells it.
func (d *database) query(r *run, to any, text string) { r.check(text, ask(d.primary, to, text)) }

func (d *database) exec(r *run, text string) { r.check(text, ask(d.primary, nil, text)) }

func ask(s *pgtest.Server, to any, text string) error {
	ctx, cancel := context.WithTimeout(background(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	if to != nil {
		return c.QueryRow(ctx, text).Scan(to)
	}
	_, err = c.Exec(ctx, text)
	return err
}

func (r *run) check(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// endConnections ends connections of Lockers, one after another.
func endConnections(r *run) {
	for end := time.Now().Add(*runFor - 2*lease); time.Now().Before(end); time.Sleep(lease / 60) {
		n := 0
		r.base.query(r, &n, `SELECT count(pg_terminate_backend(pid)) FROM
			(SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS one`)
		r.base.ended += n
	}
	time.Sleep(2 * lease)
}

// follows waits until the standby has all data, and is synchronous or not.
func (d *database) follows(r *run, state string) {
	r.settled("the standby follows", func() bool {
		var is bool
		return ask(d.primary, &is, `SELECT bool_and(state = 'streaming' AND sync_state = '`+state+`') FROM pg_stat_replication`) == nil && is
	})
}

// stop stops a process of the primary while it waits, because it may have a lock at other times.
func (d *database) stop(r *run, process string) {
	one := ` FROM pg_stat_activity WHERE backend_type = '` + process + `'`
	r.settled(process+" is stopped", func() bool {
		waits := false
		d.query(r, &d.stopped, `SELECT pid`+one)
		r.check("SIGSTOP", syscall.Kill(d.stopped, syscall.SIGSTOP))
		if d.query(r, &waits, `SELECT coalesce(wait_event_type, '') = 'Activity'`+one); !waits {
			r.check("SIGCONT", syscall.Kill(d.stopped, syscall.SIGCONT))
		}
		return waits
	})
}

// kill kills the primary. Its process that was stopped would not notice that.
func (d *database) kill(r *run) {
	r.check("SIGKILL", syscall.Kill(d.stopped, syscall.SIGKILL))
	d.primary.Kill()
}

// promote kills the primary, and promotes its standby.
func (d *database) promote(r *run) {
	d.kill(r)
	d.primary, d.standby = d.standby, d.primary
	d.exec(r, `SELECT pg_promote()`)
}

// survives counts the grants and records from before a fault that are not there after it. The first function
// prepares the fault, and the second one returns when there is a server again.
func (r *run) survives(before, strike func()) {
	r.Helper()
	r.each(5)
	before()
	d := r.base
	d.tried++
	key := fmt.Sprint("before", d.tried)
	held, err := r.locks(0).Acquire(background(), key, lockcore.Terms{Lease: patience})
	r.check("before", err)
	once := func(locks *lockcore.Locker) guard.Outcome {
		res, err := guard.OnceValue(background(), locks, key, guard.OnceOptions{}, func(context.Context) (string, error) { return key, nil })
		if err != nil || res.Value != key {
			r.Errorf("the record of %s is %q, %v", key, res.Value, err)
		}
		return res.Outcome
	}
	once(r.locks(0))
	r.fault()
	strike()
	r.heal()
	r.each(5)
	var now lockcore.Holding
	r.settled("after", func() bool {
		now, err = r.locks(1).Inspect(background(), event.KindExclusive, key)
		return err == nil
	})
	if now.Token != held.Token() {
		d.lostGrants++
	}
	_ = held.Release(background()) // if its first command gets no reply, it cannot report a loss
	if once(r.locks(1)) != guard.Replayed {
		d.lostRecords++
	}
	if d.lostGrants+d.lostRecords > 0 && !r.must.overlaps {
		r.Errorf("a grant or a record of %s is lost", key)
	}
}
