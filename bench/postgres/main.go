// Command postgres compares a Locker on PostgreSQL with what its users have without one: a table of
// locks, and advisory locks. It starts a PostgreSQL server with fsync, of Debian's package, and stops it
// at the end:
//
//	go -C bench run ./postgres -rounds 6 -for 3s
//
// A pair is an acquire and a release. Each figure is the median of the rounds, in which the locks run one
// after the other, and a ratio compares two runs of one round. The CPU time is that of all processes of
// the server.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/perf/benchmath"

	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

const childEnv = "HOLDFAST_BENCH_POSTGRES"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := bench
	if os.Getenv(childEnv) != "" {
		run = child
	}
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load is a scenario of pairs.
type load struct {
	name      string
	processes int
	each      int // goroutines of a process
	work      time.Duration
	oneKey    bool
	locks     []string // the first is the one that the others are compared with
}

var loads = []load{
	{name: "8 goroutines, own keys", processes: 1, each: 8, locks: []string{"table", "holdfast"}},
	{name: "16 goroutines, one key", processes: 1, each: 16, oneKey: true, locks: []string{"advisory", "holdfast"}},
	{name: "16 processes, one key, 2 ms", processes: 16, each: 1, work: 2 * time.Millisecond, oneKey: true, locks: []string{"advisory", "holdfast"}},
}

// result is a run of a load.
type result struct {
	pairs float64 // a second
	cpu   float64 // µs of the server a pair
}

func bench(ctx context.Context) error {
	rounds := flag.Int("rounds", 6, "rounds of each load")
	length := flag.Duration("for", 3*time.Second, "length of a run")
	only := flag.String("only", "", "a part of the name of the load that is measured alone")
	flag.Parse()
	s, err := pgtest.Start("-c max_connections=200 -c shared_buffers=128MB")
	if err != nil {
		return err
	}
	defer s.Stop()
	b := &server{Server: s}
	if b.pool, err = pgxpool.New(ctx, s.DSN("postgres")); err != nil {
		return err
	}
	defer b.pool.Close()
	if _, err := b.pool.Exec(ctx, postgres.Create("")+`;
CREATE TABLE locks (name text PRIMARY KEY, owner text NOT NULL, token bigserial, expires timestamptz NOT NULL) WITH (fillfactor = 50)`); err != nil {
		return err
	}
	for _, l := range loads {
		if !strings.Contains(l.name, *only) {
			continue
		}
		runs := map[string][]result{}
		for round := range *rounds {
			for i := range l.locks {
				lock := l.locks[(i+round)%len(l.locks)]
				r, err := b.run(ctx, l, lock, *length)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, lock, err)
				}
				runs[lock] = append(runs[lock], r)
			}
		}
		for _, lock := range l.locks {
			fmt.Printf("%-28s %-9s %s pairs/s  %s µs of the server", l.name, lock, median(runs[lock], pairs), median(runs[lock], cpu))
			if lock != l.locks[0] {
				fmt.Printf("  ratios %s, %s", ratio(runs[lock], runs[l.locks[0]], pairs), ratio(runs[lock], runs[l.locks[0]], cpu))
			}
			fmt.Println()
		}
	}
	if *only != "" {
		return nil
	}
	if err := b.hot(ctx); err != nil {
		return err
	}
	return b.openTransaction(ctx, *length)
}

func pairs(r result) float64 { return r.pairs }
func cpu(r result) float64   { return r.cpu }

func median(rs []result, of func(result) float64) string {
	return summary(values(rs, of), "%.0f")
}

func ratio(rs, to []result, of func(result) float64) string {
	vs := values(rs, of)
	for i := range vs {
		vs[i] /= of(to[i])
	}
	return summary(vs, "%.2f")
}

func values(rs []result, of func(result) float64) (vs []float64) {
	for _, r := range rs {
		vs = append(vs, of(r))
	}
	return vs
}

func summary(vs []float64, format string) string {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(vs, &benchmath.DefaultThresholds), 0.95)
	return fmt.Sprintf(format+" ["+format+", "+format+"]", s.Center, s.Lo, s.Hi)
}

// server is the measured server.
type server struct {
	*pgtest.Server
	pool *pgxpool.Pool
	runs int
}

// run runs a load in processes of its own.
func (s *server) run(ctx context.Context, l load, lock string, length time.Duration) (r result, err error) {
	s.runs++
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	var all []*exec.Cmd
	var outs []*bufio.Reader
	var starts []interface{ Close() error }
	defer func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range l.processes {
		c := exec.CommandContext(ctx, program)
		c.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{lock, s.DSN("postgres"), strconv.Itoa(l.each), l.work.String(), length.String(), strconv.FormatBool(l.oneKey), strconv.Itoa(s.runs)}, "|"))
		c.Stderr = os.Stderr
		in, err1 := c.StdinPipe()
		out, err2 := c.StdoutPipe()
		if err := errors.Join(err1, err2); err != nil {
			return r, err
		}
		if err := c.Start(); err != nil {
			return r, err
		}
		all, outs, starts = append(all, c), append(outs, bufio.NewReader(out)), append(starts, in)
	}
	line := func(i int) (string, error) {
		text, err := outs[i].ReadString('\n')
		return strings.TrimSpace(text), err
	}
	for i := range all { // each is connected
		if _, err := line(i); err != nil {
			return r, err
		}
	}
	time.Sleep(time.Second) // until the Lockers listen
	before, err := s.cpu()
	if err != nil {
		return r, err
	}
	for _, in := range starts {
		_ = in.Close()
	}
	total := 0
	for i := range all {
		text, err := line(i)
		if err != nil {
			return r, err
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return r, err
		}
		total += n
	}
	after, err := s.cpu()
	return result{pairs: float64(total) / length.Seconds(), cpu: float64((after - before).Microseconds()) / float64(max(total, 1))}, err
}

// cpu returns the CPU time of the server's processes, those included that have ended.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(s.Dir + "/data/postmaster.pid")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	children, err := os.ReadFile("/proc/" + first + "/task/" + first + "/children")
	if err != nil {
		return 0, err
	}
	sum, err := ticks(first, 13, 17) // with those of its children that have ended
	for pid := range strings.FieldsSeq(string(children)) {
		n, _ := ticks(pid, 13, 15)
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond, err
}

// ticks returns the sum of some fields of /proc/PID/stat, counted from 0: utime, stime, cutime, cstime.
func ticks(pid string, from, to int) (sum int, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[slices.Index(text, ')')+1:]))
	for _, f := range fields[from-2 : to-2] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// child is a process of a load. It writes a line when it is connected, waits for the end of its input, and
// writes the number of its pairs.
func child(ctx context.Context) error {
	args := strings.Split(os.Getenv(childEnv), "|")
	lock, dsn := args[0], args[1]
	each, err1 := strconv.Atoi(args[2])
	work, err2 := time.ParseDuration(args[3])
	length, err3 := time.ParseDuration(args[4])
	oneKey, err4 := strconv.ParseBool(args[5])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	conf.MaxConns = max(int32(each), 2) //nolint:gosec // a small number
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer pool.Close()
	take, err := locker(lock, pool)
	if err != nil {
		return err
	}
	key := func(i int) string {
		if oneKey {
			return "key:" + args[6]
		}
		return fmt.Sprint("key:", args[6], ":", os.Getpid(), ":", i)
	}
	errs := make(chan error, each)
	pair := func(ctx context.Context, i int) error {
		end, err := take(ctx, key(i))
		if err != nil {
			return err
		}
		time.Sleep(work)
		return end()
	}
	if !oneKey {
		for i := range each { // opens the connections
			if err := pair(ctx, i); err != nil {
				return err
			}
		}
	} else if err := pair(ctx, 0); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	var n atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for i := range each {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := pair(ctx, i); err != nil {
					errs <- err
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Println(n.Load())
	return nil
}

// locker returns how a lock takes a key, and ends the hold.
func locker(lock string, pool *pgxpool.Pool) (func(context.Context, string) (func() error, error), error) {
	switch lock {
	case "holdfast":
		locks, err := postgres.New(pool, postgres.Options{})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, key string) (func() error, error) {
			le, err := locks.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever})
			if err != nil {
				return nil, err
			}
			return func() error { return le.Release(ctx) }, nil
		}, nil
	case "advisory":
		return func(ctx context.Context, key string) (func() error, error) {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
				return nil, err
			}
			return func() error {
				defer c.Release()
				_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key)
				return err
			}, nil
		}, nil
	}
	return func(ctx context.Context, key string) (func() error, error) {
		owner, token := strconv.Itoa(os.Getpid()), int64(0)
		err := pool.QueryRow(ctx, `INSERT INTO locks AS k (name, owner, expires) VALUES ($1, $2, clock_timestamp() + interval '30 s')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires, token = excluded.token WHERE k.expires < clock_timestamp() RETURNING token`, key, owner).Scan(&token)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errors.New("the key is busy")
		}
		return func() error {
			_, err := pool.Exec(ctx, `DELETE FROM locks WHERE name = $1 AND owner = $2`, key, owner)
			return err
		}, err
	}, nil
}

// hot prints the part of the updates of holdfast_keys that wrote no index.
func (s *server) hot(ctx context.Context) error {
	time.Sleep(2 * time.Second) // the server counts late
	var updates, hot int64
	err := s.pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'holdfast_keys'`).Scan(&updates, &hot)
	fmt.Printf("updates that are HOT: %.2f %% of %d\n", float64(hot)*100/float64(max(updates, 1)), updates)
	return err
}

// openTransaction prints the CPU time of a pair of one key while a transaction stays open, and after it.
func (s *server) openTransaction(ctx context.Context, length time.Duration) error {
	one := load{name: "one key", processes: 1, each: 1, oneKey: true}
	measure := func(what string, base float64) (float64, error) {
		r, err := s.run(ctx, one, "holdfast", length)
		fmt.Printf("%-28s %.0f pairs/s  %.0f µs of the server", what, r.pairs, r.cpu)
		if base > 0 {
			fmt.Printf("  ratio %.2f", r.cpu/base)
		}
		fmt.Println()
		s.runs-- // the same key again
		return r.cpu, err
	}
	base, err := measure("no open transaction", 0)
	if err != nil {
		return err
	}
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM holdfast_keys"); err != nil { // a snapshot
		return err
	}
	for wrote := 0; wrote < 10_000; {
		r, err := s.run(ctx, one, "holdfast", length)
		if err != nil {
			return err
		}
		s.runs--
		wrote += 2 * int(r.pairs*length.Seconds())
	}
	if _, err = measure("after 10,000 writes beside one", base); err != nil {
		return err
	}
	if err := tx.Rollback(ctx); err != nil {
		return err
	}
	time.Sleep(10 * time.Second)
	_, err = measure("10 s after its end", base)
	return err
}
