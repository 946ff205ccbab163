//go:build unix

package rivermw_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
	"github.com/holdfast-go/holdfast/postgres"
)

// entry is a line of the journal: the begin or the end of a run.
type entry struct {
	PID     int
	Job     int64
	Account string
	Token   int64
	Ends    bool
	At      int64 // process.Now
}

// victim works jobs in a process of its own, until it is killed or its input ends. It writes the
// journal to its output.
func victim(dsn string, in *bufio.Scanner) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	locks, err := postgres.New(pool, postgres.Options{Options: lockcore.Options{Observer: event.Discard}})
	if err != nil {
		return err
	}
	cfg := killable(charging(func(ctx context.Context, job *river.Job[chargeArgs]) error {
		e := entry{PID: os.Getpid(), Job: job.ID, Account: job.Args.Account}
		h, held := guard.Current(ctx)
		if !held { // the machine was so busy that the lease has ended
			return cmp.Or(context.Cause(ctx), lockcore.ErrLost)
		}
		e.Token, e.At = h.Token, process.Now()
		process.WriteLine(os.Stdout, e)
		time.Sleep(50 * time.Millisecond)
		e.Ends, e.At = true, process.Now()
		process.WriteLine(os.Stdout, e)
		return nil
	}))
	cfg.Middleware = []rivertype.Middleware{
		rivermw.Wake[pgx.Tx](cfg),
		rivermw.Exclusive(locks, byAccount, rivermw.ExclusiveOptions{Terms: lockcore.Terms{Lease: 3 * time.Second}}),
	}
	client, err := river.NewClient(riverpgxv5.New(pool), cfg)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	in.Scan()
	if err := client.Stop(ctx); err != nil {
		return err
	}
	return locks.Close(ctx)
}

// killable is a configuration under which River soon brings the jobs of a killed worker again. Its
// leader looks for them every 30 s.
func killable(work *worker[chargeArgs]) *river.Config {
	cfg := config(6, work)
	cfg.JobTimeout, cfg.RescueStuckJobsAfter = 3*time.Second, 5*time.Second
	return cfg
}

// A hundred workers are killed with SIGKILL at random moments, while jobs of four accounts run, wait
// and are parked. Every job is done, no two jobs of an account run side by side, and their fencing
// tokens grow.
// Shows: J2
func TestKilledWorkers(t *testing.T) {
	testlevel.Campaign(t)
	const kills, perKill, workers = 100, 10, 4
	w := newWorld(t)
	w.newClient(killable(charging(succeeds)))
	path := filepath.Join(t.TempDir(), "journal")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()

	running := make([]*process.Process, workers)
	for i := range running {
		running[i] = process.Start(t, w.dsn, out)
	}
	killed := map[int]int64{} // by PID: when it was still alive
	parked := 0
	for i := range kills {
		for j := range perKill {
			w.insert(chargeArgs{Account: fmt.Sprint("account ", (i+j)%4)})
		}
		time.Sleep(rand.N(time.Second))
		v := rand.N(workers)
		killed[running[v].PID()] = process.Now()
		running[v].Kill()
		running[v] = process.Start(t, w.dsn, out)
		for account := range 4 {
			h, err := w.locks.Inspect(t.Context(), event.KindExclusive, fmt.Sprint("account:account ", account))
			if err != nil {
				t.Fatal(err)
			}
			parked = max(parked, h.Parked)
		}
	}
	count := func(where string) (n int) {
		if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	atKill, began := count("state = 'running'"), time.Now()
	for range 2 { // 3 min each
		if w.eventually(func() bool { return count("state <> 'completed'") == 0 }) {
			break
		}
	}
	if n := count("state <> 'completed'"); n > 0 {
		t.Errorf("%d jobs are not done", n)
	}
	for _, p := range running {
		p.Close()
		<-p.Ended
	}
	if n := count("attempt - 1 <> cardinality(coalesce(errors, '{}'))"); n > 0 {
		t.Errorf("%d jobs have used up attempts without an error", n)
	}
	if n := count("EXISTS (SELECT FROM unnest(errors) e WHERE e->>'error' <> 'Stuck job rescued by JobRescuer' AND e->>'error' NOT LIKE '%lease lost%')"); n > 0 {
		t.Errorf("%d jobs have failed", n)
	}

	journal, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = journal.Close() }()
	var entries []entry
	if err := process.ReadLines(journal, func(e entry) { entries = append(entries, e) }); err != nil {
		t.Fatal(err)
	}
	done, runs, cut := judge(t, entries, killed)
	if len(done) != kills*perKill {
		t.Errorf("%d of %d jobs have a complete run", len(done), kills*perKill)
	}
	for _, e := range entries {
		if !done[e.Job] {
			t.Errorf("no complete run: %+v, %+v", e, w.job(e.Job))
		}
	}
	if cut == 0 || parked == 0 {
		t.Errorf("%d runs were cut off, and up to %d jobs parked: the test has shown nothing", cut, parked)
	}
	t.Logf("%d runs of %d jobs, %d cut off by a kill, up to %d parked; %d jobs running after the last kill, all done %v later", runs, len(done), cut, parked, atKill, time.Since(began).Round(time.Second))
}

// run is a run in the journal. A run that a kill has cut off ends when its process was still alive.
type run struct {
	entry

	end int64
	cut bool
}

// judge fails the test if runs of an account are side by side or have tokens that do not grow. It
// returns which jobs have a complete run, how many runs there are, and how many were cut off.
func judge(t interface{ Errorf(string, ...any) }, entries []entry, killed map[int]int64) (done map[int64]bool, total, cut int) {
	type id struct {
		pid   int
		job   int64
		token int64
	}
	ends := map[id]int64{}
	done = map[int64]bool{}
	for _, e := range entries {
		if e.Ends {
			ends[id{e.PID, e.Job, e.Token}] = e.At
			done[e.Job] = true
		}
	}
	runs := map[string][]run{}
	for _, e := range entries {
		if e.Ends {
			continue
		}
		r := run{entry: e}
		r.end = ends[id{e.PID, e.Job, e.Token}]
		if r.end == 0 {
			r.end, r.cut = killed[e.PID], true
			cut++
		}
		total++
		runs[e.Account] = append(runs[e.Account], r)
	}
	for _, all := range runs {
		slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.At, b.At) })
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			if b.At < a.end {
				t.Errorf("side by side: %+v and %+v", a, b)
			}
			if b.Token <= a.Token {
				t.Errorf("tokens do not grow: %+v and %+v", a, b)
			}
		}
	}
	return done, total, cut
}

// complaints counts what judge finds.
type complaints int

func (c *complaints) Errorf(string, ...any) { *c++ }

// The judge finds runs side by side, also with one that was cut off, and tokens that do not grow.
func TestJudge(t *testing.T) {
	t.Parallel()
	begin := func(pid int, token, at int64) entry {
		return entry{PID: pid, Job: int64(pid), Account: "a", Token: token, At: at}
	}
	end := func(pid int, token, at int64) entry {
		e := begin(pid, token, at)
		e.Ends = true
		return e
	}
	for name, c := range map[string]struct {
		entries []entry
		want    complaints
	}{
		"one after the other": {[]entry{begin(1, 1, 10), end(1, 1, 20), begin(2, 2, 20), end(2, 2, 30)}, 0},
		"side by side":        {[]entry{begin(1, 1, 10), begin(2, 2, 15), end(2, 2, 18), end(1, 1, 20)}, 1},
		"while it was alive":  {[]entry{begin(9, 1, 10), begin(2, 2, 40), end(2, 2, 50)}, 1},
		"after its death":     {[]entry{begin(9, 1, 10), begin(2, 2, 60), end(2, 2, 70)}, 0},
		"an older token":      {[]entry{begin(1, 2, 10), end(1, 2, 20), begin(2, 1, 20), end(2, 1, 30)}, 1},
	} {
		var got complaints
		judge(&got, c.entries, map[int]int64{9: 50})
		if got != c.want {
			t.Errorf("%s: %d complaints, want %d", name, got, c.want)
		}
	}
}
