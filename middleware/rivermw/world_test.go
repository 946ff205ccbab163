//go:build unix

package rivermw_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9/logging"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/postgres"
)

// server is the server of all tests. The database template has the tables of River and of holdfast.
var (
	start = sync.OnceValues(func() (*pgtest.Server, error) {
		s, err := pgtest.Start(pgtest.Fast + " -c max_connections=300")
		if err != nil {
			return nil, err
		}
		running = s
		return s, prepare(s)
	})
	running   *pgtest.Server
	databases atomic.Int64
)

func TestMain(m *testing.M) {
	process.Work(victim)
	logging.Disable() // some tests cause faults
	code := m.Run()
	if running != nil {
		running.Stop()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(s *pgtest.Server) error {
	ctx := context.Background()
	if err := execute(ctx, s.DSN("postgres"), "CREATE DATABASE template"); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.DSN("template"))
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, postgres.Create(""))
	return err
}

func execute(ctx context.Context, dsn, text string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, text)
	return err
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// world is a database with River, and a Locker in it.
type world struct {
	*testing.T
	dsn    string
	pool   *pgxpool.Pool
	locks  *lockcore.Locker
	heard  *locktest.Recorder
	client *river.Client[pgx.Tx] // the last one of serve
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pgtest.Need(t)
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test%d", databases.Add(1))
	creating.Lock() // the template must have no other user
	err = execute(t.Context(), s.DSN("postgres"), "CREATE DATABASE "+name+" TEMPLATE template")
	creating.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, dsn: s.DSN(name), heard: new(locktest.Recorder)}
	if w.pool, err = pgxpool.New(context.Background(), w.dsn+" pool_max_conns=20"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	w.locks = w.locker()
	return w
}

var creating sync.Mutex

// locker returns a Locker, as that of another process.
func (w *world) locker() *lockcore.Locker {
	w.Helper()
	locks, err := postgres.New(w.pool, postgres.Options{Options: lockcore.Options{Observer: w.heard}})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			w.Error(err)
		}
	})
	return locks
}

// chargeArgs are the args of most jobs.
type chargeArgs struct {
	Account string `json:"account_id"`
	Payment int    `json:"payment_id,omitempty"`
}

func (chargeArgs) Kind() string { return "charge" }

// worker works the jobs of T.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]

	guards  []rivertype.WorkerMiddleware
	timeout time.Duration
	work    func(context.Context, *river.Job[T]) error
}

func (w *worker[T]) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return w.guards }
func (w *worker[T]) Timeout(*river.Job[T]) time.Duration                       { return w.timeout }
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error         { return w.work(ctx, job) }

// NextRetry lets the next attempt begin at once.
func (w *worker[T]) NextRetry(*river.Job[T]) time.Time { return time.Now() }

// charging returns a worker of charges.
func charging(work func(context.Context, *river.Job[chargeArgs]) error, guards ...rivertype.WorkerMiddleware) *worker[chargeArgs] {
	return &worker[chargeArgs]{work: work, guards: guards}
}

// config returns a configuration in which a job is found soon.
func config(workers int, work *worker[chargeArgs]) *river.Config {
	c := &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers: river.NewWorkers(), Logger: quiet,
		FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
	}
	river.AddWorker(c.Workers, work)
	return c
}

// serve starts a client, which is stopped when the test ends, before the Locker is closed.
func (w *world) serve(c *river.Config) *river.Client[pgx.Tx] {
	w.Helper()
	client := w.newClient(c)
	if err := client.Start(context.Background()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = client.StopAndCancel(context.Background()) })
	return client
}

func (w *world) newClient(c *river.Config) *river.Client[pgx.Tx] {
	w.Helper()
	client, err := river.NewClient(riverpgxv5.New(w.pool), c)
	if err != nil {
		w.Fatal(err)
	}
	w.client = client
	return client
}

// insert inserts a job for the last client.
func (w *world) insert(args river.JobArgs) int64 {
	w.Helper()
	r, err := w.client.Insert(w.Context(), args, nil)
	if err != nil {
		w.Fatal(err)
	}
	return r.Job.ID
}

func (w *world) job(id int64) *rivertype.JobRow {
	w.Helper()
	job, err := w.client.JobGet(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return job
}

// until waits until ok returns true for the job, for at most 3 min.
func (w *world) until(id int64, ok func(*rivertype.JobRow) bool) *rivertype.JobRow {
	w.Helper()
	var job *rivertype.JobRow
	if !w.eventually(func() bool { job = w.job(id); return ok(job) }) {
		w.Fatalf("job %d is still %s, attempt %d, metadata %s, errors %v", id, job.State, job.Attempt, job.Metadata, job.Errors)
	}
	return job
}

// ends waits until the job has a state.
func (w *world) ends(id int64, state rivertype.JobState) *rivertype.JobRow {
	w.Helper()
	return w.until(id, func(j *rivertype.JobRow) bool { return j.State == state })
}

// snoozed waits until the job is snoozed.
func (w *world) snoozed(id int64) *rivertype.JobRow {
	w.Helper()
	return w.until(id, func(j *rivertype.JobRow) bool {
		return j.State == rivertype.JobStateScheduled || j.State == rivertype.JobStateAvailable && snoozes(w, j) > 0
	})
}

func (w *world) eventually(ok func() bool) bool {
	w.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
