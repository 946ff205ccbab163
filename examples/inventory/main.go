//go:build unix

// Command inventory sells a stock to a crowd in nine ways, and counts what goes wrong in each.
// 1,000 users want 100 units, and each user clicks twice.
//
//	go -C examples/inventory run .                                            SQLite, and a Redis inside the process
//	go -C examples/inventory run . -redis localhost:6379 -db postgres://localhost/test
//	go -C examples/inventory run . -redis localhost:6379 -db 'mysql://root@tcp(localhost:3306)/'
//	go -C examples/inventory run . -work 200ms                                each sale takes 200 ms more, so stripes are faster
//	go -C examples/inventory run . -only 'SQL: row lock' -users 5000          one way, and a larger crowd
//
// On a server it creates a schema or database, and removes it at the end, also after Ctrl-C and
// SIGTERM. It also deletes its keys in Redis. It exits with 1 unless the two controls go wrong and
// all other strategies are right. It needs Unix, because it stops a process with SIGSTOP. Read
// strategies.go first.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	minUsers, maxUsers   = 20, 100_000
	minUnits             = 10 // one for each stripe
	minClicks, maxClicks = 2, 10
	minAtOnce, maxAtOnce = 2, 1000
	maxWork              = 250 * time.Millisecond

	keep  = 10 * time.Minute // how long records and the counter stay in Redis
	tries = 3                // runs of a control until it goes wrong
)

func main() {
	if args, child := os.LookupEnv(pausedEnv); child {
		if err := buyPaused(context.Background(), args, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "inventory:", err)
			os.Exit(1)
		}
		return
	}
	program().Main()
}

func program() stage.Program {
	m := &market{}
	return stage.Program{
		Name: "inventory",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&m.address, "db", "", "`address` of a database, postgres://… or mysql://USER:PASSWORD@tcp(HOST:PORT)/; default: an SQLite file")
			f.IntVar(&m.users, "users", 1000, fmt.Sprintf("`number` of users, %d to %d", minUsers, maxUsers))
			f.IntVar(&m.units, "units", 100, fmt.Sprintf("`number` of units, %d to half of -users", minUnits))
			f.IntVar(&m.clicks, "clicks", 2, fmt.Sprintf("`number` of clicks of each user, %d to %d", minClicks, maxClicks))
			f.IntVar(&m.atOnce, "at-once", 64, fmt.Sprintf("`number` of clicks at the same time, %d to %d", minAtOnce, maxAtOnce))
			f.DurationVar(&m.work, "work", 0, fmt.Sprintf("how much longer each sale takes, at most %v", maxWork))
			f.StringVar(&m.only, "only", "", "`name` of the one strategy to run, as in the table")
		},
		Play: func(ctx context.Context, s *stage.Stage) (err error) {
			if err := m.validate(); err != nil {
				return err
			}
			m.Stage = s
			d, remove, err := newDatabase(ctx, m.address, strings.ReplaceAll(s.Name, "-", "_"))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, remove()) }()
			m.database = d
			return m.compare(ctx)
		},
	}
}

// strategy is one way to sell. buy is called for each click. It returns nil if the user has an
// order, from this click or another one, and errSoldOut if nothing is left.
type strategy struct {
	name    string
	control bool          // known to be wrong; a run in which it does no harm is repeated
	redis   bool          // it uses Redis, so a Redis inside the process makes its times meaningless
	keyless bool          // the payment has no key, so the provider cannot tell a repeat from a new payment
	stripes int           // rows of the stock; 0: one
	gate    bool          // units are counted in Redis instead of in the stock
	pause   bool          // a holder is paused before it writes
	race    time.Duration // how long a sale takes at least between its read and its write
	buy     func(ctx context.Context, s *shop, user int) error
}

// validate returns an error that names the flag, its value and the bound.
func (m *market) validate() error {
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"users", m.users, minUsers, maxUsers},
		{"units", m.units, minUnits, m.users / 2},
		{"clicks", m.clicks, minClicks, maxClicks},
		{"at-once", m.atOnce, minAtOnce, maxAtOnce},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("-%s is %d, must be between %d and %d", f.name, f.value, f.min, f.max)
		}
	}
	if m.work < 0 || m.work > maxWork {
		return fmt.Errorf("-work is %v, must be between 0 and %v", m.work, maxWork)
	}
	if m.only != "" && !slices.ContainsFunc(strategies, func(t strategy) bool { return t.name == m.only }) {
		names := make([]string, len(strategies))
		for i, t := range strategies {
			names[i] = t.name
		}
		return fmt.Errorf("-only is %q, must be one of %q", m.only, names)
	}
	return nil
}

// market runs the strategies, one after another.
type market struct {
	*stage.Stage
	crowd
	*database
	address string // of the database
	units   int
	work    time.Duration
	only    string // strategy, or empty for all
}

const (
	nameFormat = "%-36s "
	rowFormat  = "%5v %9v %11v %14v %5v %14v %12v %9v %8v %8v   %s\n"
)

// compare runs the strategies and prints their results. It returns an error unless the controls
// went wrong and all others were right. If it returns nil and ran all strategies, it also prints
// the conclusions.
func (m *market) compare(ctx context.Context) (err error) {
	fmt.Fprintf(m.Out, "%d users want %d units, and each clicks %d times; %d clicks at once; locks in Redis, orders in %s\n\n",
		m.users, m.units, m.clicks, m.atOnce, m.dialect)
	fmt.Fprintf(m.Out, nameFormat+rowFormat, "strategy", "sold", "oversold", "two orders", "charged twice", "left", "stale refused", "begun again", "clicks/s", "p50", "p99", "")
	for _, t := range strategies {
		if m.only != "" && m.only != t.name {
			continue
		}
		var verdict error
		for try := 1; ; try++ {
			fmt.Fprintf(m.Out, nameFormat, t.name)
			r, failed := m.runStrategy(ctx, t)
			if ctx.Err() != nil {
				fmt.Fprintln(m.Out)
				return context.Cause(ctx)
			}
			if failed != nil {
				return fmt.Errorf("%s: %w", t.name, failed)
			}
			verdict = t.judge(r, m.units)
			m.print(t, r, verdict)
			if verdict == nil || !t.control || try == tries { // a control may be lucky
				break
			}
		}
		if verdict != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", t.name, verdict))
		}
	}
	fmt.Fprint(m.Out, "\n", legend)
	if m.Inside {
		fmt.Fprintln(m.Out, "-: not measured, because the Redis is inside this process. Use -redis.")
	}
	if err == nil && m.only == "" {
		fmt.Fprint(m.Out, "\n", conclusions)
	}
	return err
}

// print prints the rest of a row.
func (m *market) print(t strategy, r result, verdict error) {
	said := "right"
	switch {
	case verdict != nil:
		said = verdict.Error()
	case t.control:
		said = "wrong, as expected"
	}
	rate, p50, p99 := fmt.Sprintf("%.0f", r.rate), round(r.p50).String(), round(r.p99).String()
	if t.redis && m.Inside {
		rate, p50, p99 = "-", "-", "-"
	}
	fmt.Fprintf(m.Out, rowFormat, r.sold, r.oversold, r.two, r.twice, r.left, r.stale, r.retries, rate, p50, p99, said)
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

const legend = `two orders, charged twice: users. In "no lock" each click that got an order pays, and the payment has no key.
left: units that are still in the stock, or in the counter.
stale refused: writes of a paused holder that the fence refused.
begun again: transactions that ran again because they conflicted with another one.
`

const conclusions = `What this says
  Without a lock the shop sells more units than it has, and users who click twice get two orders.
  A lock alone does not stop a holder that is paused after its read: the holder writes when it continues. A fence in the database refuses that write.
  Work in one database needs no lock in Redis. One UPDATE with sqlonce is the shortest correct way.
  A counter in Redis refuses late clicks before they reach the database.
  Stripes pay if the work under the lock takes long. Try -work 200ms.
  The provider drops every fifth response, and the client repeats the request. Only the key of the order keeps the provider from charging twice.

What it does not say
  The rates are those of one machine, with one process and one pool of connections. Compare them only with each other.
  SQLite has one writer, so its transactions do not conflict. Try -db.
  No process dies here. The first five ways have no transaction. If a process dies there between stock and order, a unit is neither in stock nor sold.
`

// judge returns what is wrong with r. A control must have oversold. Without a lock it must also
// have accepted two orders of a user.
func (t strategy) judge(r result, units int) error {
	stale := 0
	if t.pause && !t.control {
		stale = 1
	}
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d clicks failed, the first with: %w", r.failed, r.firstErr)
	case t.control && (r.oversold == 0 || !t.pause && r.two == 0):
		return errors.New("inconclusive: a control did no harm")
	case t.control:
		return nil
	case r.oversold != 0 || r.two != 0 || r.sold != units || r.left != 0 || r.twice != 0 || r.charged != r.sold || r.stale != stale:
		return fmt.Errorf("WRONG: %d sold, %d oversold, %d users with two orders, %d charged twice, %d left, %d users charged, %d writes refused; "+
			"want %d, 0, 0, 0, 0, %d, %d", r.sold, r.oversold, r.two, r.twice, r.left, r.charged, r.stale, units, units, stale)
	}
	return nil
}

// runStrategy sells all units with one strategy.
func (m *market) runStrategy(ctx context.Context, t strategy) (r result, err error) {
	rows := max(t.stripes, 1)
	if err := m.fill(ctx, m.units, rows); err != nil {
		return r, err
	}
	prefix := m.Name + "-" + strings.ToLower(rand.Text()[:8])
	node, err := m.Node(lockcore.Options{Prefix: prefix})
	if err != nil {
		return r, err
	}
	s := &shop{database: m.database, rdb: m.Redis, locks: node.Locks, gate: prefix + ":units", workTime: max(m.work, t.race), empty: make([]atomic.Bool, rows)}
	if err := m.Redis.Set(ctx, s.gate, m.units, keep).Err(); err != nil {
		return r, err
	}
	pay, err := newProvider(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, pay.close()) }()
	resume := func() (bool, error) { return false, nil }
	if t.pause {
		resume, err = pausedBuyer{t.name, m.dsn, m.Redis.Options().Addr, prefix, m.dialect, m.users}.start(ctx)
		if err != nil {
			return r, err
		}
	}
	buyers, r := m.click(ctx, func(ctx context.Context, user int) error { return t.buy(ctx, s, user) })
	stale, err := resume()
	if err != nil {
		return r, err
	}
	if stale {
		r.stale = 1
	}
	r.retries = s.retries.Load()
	if err := m.payAll(ctx, pay, buyers, t.keyless); err != nil {
		return r, err
	}
	r.charged, r.twice = pay.counts()
	err = m.count(ctx, &r)
	if t.gate && err == nil {
		r.left, err = m.Redis.Get(ctx, s.gate).Int()
	}
	return r, err
}

// payAll pays once for each element of buyers. With the key of the order a repeated payment is
// harmless.
func (m *market) payAll(ctx context.Context, p *provider, buyers []int, keyless bool) error {
	var mu sync.Mutex
	var errs error
	each(ctx, connections, buyers, func(user int) {
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
