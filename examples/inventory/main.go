//go:build unix

// Command inventory sells a stock to a crowd in nine ways, and counts what goes wrong in each. 1,000 users want 100 units, and
// each user clicks twice.
//
//	go -C examples/inventory run .                                            SQLite, and a Redis inside the process
//	go -C examples/inventory run . -redis localhost:6379 -db postgres://localhost/test
//	go -C examples/inventory run . -redis localhost:6379 -db 'mysql://root@tcp(localhost:3306)/'
//	go -C examples/inventory run . -work 200ms                                each sale takes 200 ms more, so stripes are faster
//
// On a server it creates a schema or database, and removes it at the end. It exits with 1 unless the two controls go wrong and
// all other ways are right. It needs Unix, because it stops a process with SIGSTOP. Read strategies.go first.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxWork = 250 * time.Millisecond
	keep    = 10 * time.Minute // how long records and the counter stay in Redis
	tries   = 3                // runs of a control until it goes wrong
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if args, child := os.LookupEnv(pausedEnv); child {
		err = buyPaused(ctx, args, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("inventory", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else one inside the process")
	db := flags.String("db", "", "`address` of a database, postgres://… or mysql://USER:PASSWORD@tcp(HOST:PORT)/; default: an SQLite file")
	work := flags.Duration("work", 0, fmt.Sprintf("how much longer each sale takes, at most %v", maxWork))
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *work < 0 || *work > maxWork {
		return fmt.Errorf("-work is %v, must be between 0 and %v", *work, maxWork)
	}
	m := &market{crowd: crowd{users: 1000, clicks: 2, atOnce: 64}, units: 100, work: *work, stdout: stdout}
	remove, err := m.open(ctx, *addr, *db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	return m.compare(ctx)
}

// market runs the strategies, one after another.
type market struct {
	crowd
	*database
	units  int
	work   time.Duration
	rdb    *redis.Client
	name   string // prefix of the keys in Redis, and name of the database
	stdout io.Writer
}

// open connects to the servers, or to those inside the process.
func (m *market) open(ctx context.Context, addr, db string) (remove func() error, err error) {
	m.name = "holdfast_inventory_" + strings.ToLower(rand.Text()[:8])
	var inside *miniredis.Miniredis
	if addr == "" {
		inside = miniredis.NewMiniRedis()
		inside.ClockTTL(true) // else nothing expires
		if err := inside.Start(); err != nil {
			return nil, err
		}
		addr = inside.Addr()
	}
	m.rdb = redis.NewClient(&redis.Options{Addr: addr})
	closeRedis := func() error {
		err := m.rdb.Close()
		if inside != nil {
			inside.Close()
		}
		return err
	}
	if err := m.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("-redis %s: %w", addr, err), closeRedis())
	}
	d, removeDB, err := newDatabase(ctx, db, m.name)
	if err != nil {
		return nil, errors.Join(err, closeRedis())
	}
	m.database = d
	return func() error { return errors.Join(removeDB(), closeRedis()) }, nil
}

const (
	nameFormat = "%-36s "
	rowFormat  = "%5v %9v %11v %14v %5v %14v %12v %9v %8v %8v   %s\n"
)

// compare runs all strategies and prints their results. It returns an error unless the controls went wrong and all others were
// right.
func (m *market) compare(ctx context.Context) (err error) {
	fmt.Fprintf(m.stdout, "%d users want %d units, and each clicks %d times; %d clicks at once; locks in Redis, orders in %s\n\n",
		m.users, m.units, m.clicks, m.atOnce, m.dialect)
	fmt.Fprintf(m.stdout, nameFormat+rowFormat, "strategy", "sold", "oversold", "two orders", "charged twice", "left", "stale refused", "begun again", "clicks/s", "p50", "p99", "")
	for _, t := range strategies {
		var verdict error
		for try := 1; ; try++ {
			fmt.Fprintf(m.stdout, nameFormat, t.name)
			r, failed := m.sell(ctx, t)
			if failed != nil {
				return fmt.Errorf("%s: %w", t.name, failed)
			}
			verdict = t.judge(r, m.units)
			said := "right"
			switch {
			case verdict != nil:
				said = verdict.Error()
			case t.control:
				said = "wrong, as expected"
			}
			fmt.Fprintf(m.stdout, rowFormat, r.sold, r.oversold, r.two, r.twice, r.left, r.stale, r.again,
				fmt.Sprintf("%.0f", r.rate), round(r.p50), round(r.p99), said)
			if verdict == nil || !t.control || try == tries { // a control may be lucky
				break
			}
		}
		if verdict != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", t.name, verdict))
		}
	}
	fmt.Fprintf(m.stdout, "\n%s", says)
	return err
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

const says = `What this says
  Without a lock the shop sells more units than it has, and users who click twice get two orders.
  A lock alone does not stop a holder that is paused after its read: the holder writes when it continues. A fence in the database refuses that write.
  Work in one database needs no lock in Redis. One UPDATE with sqlonce is the shortest correct way.
  A counter in Redis refuses late clicks before they reach the database.
  Stripes pay if the work under the lock takes long. Try -work 200ms.
  The provider drops every fifth answer, and the client asks again. Only the key of the order keeps the provider from charging twice.

What it does not say
  The rates are those of one machine, with one process and one pool of connections. Compare them only with each other.
  SQLite has one writer, so its transactions do not conflict. Try -db.
  No process dies here. The first five ways have no transaction. If a process dies there between stock and order, a unit is neither in stock nor sold.
`

// judge returns what is wrong with r. A control must have oversold, or accepted two orders of one user.
func (t strategy) judge(r result, units int) error {
	wrong := r.oversold > 0 || r.two > 0
	stale := 0
	if t.pause && !t.control {
		stale = 1
	}
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d clicks failed, the first with: %w", r.failed, r.firstErr)
	case t.control && !wrong:
		return errors.New("inconclusive: a control did no harm")
	case t.control:
		return nil
	case wrong || r.sold != units || r.left != 0 || r.twice != 0 || r.charged != r.sold || r.stale != stale:
		return fmt.Errorf("WRONG: %d sold, %d left, %d users charged, %d writes refused; want %d, 0, %d, %d", r.sold, r.left, r.charged, r.stale, units, units, stale)
	}
	return nil
}

// sell runs one strategy.
func (m *market) sell(ctx context.Context, t strategy) (r result, err error) {
	rows := max(t.stripes, 1)
	if err := m.fill(ctx, m.units, rows); err != nil {
		return r, err
	}
	prefix := m.name + "-" + strings.ToLower(rand.Text()[:8])
	locks, err := lockcore.New(m.rdb, lockcore.Options{Prefix: prefix})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, locks.Close(context.WithoutCancel(ctx))) }()
	s := &shop{database: m.database, rdb: m.rdb, locks: locks, gate: prefix + ":units", workTime: m.work, empty: make([]atomic.Bool, rows)}
	if err := m.rdb.Set(ctx, s.gate, m.units, keep).Err(); err != nil {
		return r, err
	}
	pay, err := newProvider(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, pay.close()) }()
	resume := func() (bool, error) { return false, nil }
	if t.pause {
		resume, err = pausedBuyer{t.name, m.dsn, m.rdb.Options().Addr, prefix, m.dialect, m.users}.start(ctx)
		if err != nil {
			return r, err
		}
	}
	buyers, r := m.run(ctx, func(ctx context.Context, user int) error { return t.buy(ctx, s, user) })
	stale, err := resume()
	if err != nil {
		return r, err
	}
	if stale {
		r.stale = 1
	}
	r.again = s.again.Load()
	if err := m.payAll(ctx, pay, buyers, t.keyless); err != nil {
		return r, err
	}
	r.charged, r.twice = pay.twice()
	err = m.count(ctx, &r)
	if t.gate && err == nil {
		r.left, err = m.rdb.Get(ctx, s.gate).Int()
	}
	return r, err
}

// payAll pays once for each element of buyers. With the key of the order a repeated payment is harmless.
func (m *market) payAll(ctx context.Context, p *provider, buyers []int, keyless bool) error {
	var mu sync.Mutex
	var errs error
	each(connections, buyers, func(user int) {
		key := orderKey(user)
		if keyless {
			key = ""
		}
		if err := p.pay(ctx, user, key); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
		}
	})
	return errs
}

// count reads what is in the database.
func (m *market) count(ctx context.Context, r *result) error {
	for query, value := range map[string]*int{
		`SELECT count(*) FROM orders`: &r.sold,
		`SELECT count(*) FROM (SELECT buyer FROM orders GROUP BY buyer HAVING count(*) > 1) AS buyers`: &r.two,
		`SELECT sum(units) FROM stock`: &r.left,
	} {
		if err := m.db.QueryRowContext(ctx, query).Scan(value); err != nil {
			return err
		}
	}
	r.oversold = max(0, r.sold-m.units)
	return nil
}
