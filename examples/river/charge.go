//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
	"github.com/holdfast-go/holdfast/postgres"
)

const (
	hot     = "42" // the account that has many jobs
	jobs    = 60   // of the hot account; the other accounts together have as many
	workers = 6
	work    = 25 * time.Millisecond
)

// chapter charges all accounts under guards.
type chapter struct {
	title  string
	guards func(*lockcore.Locker, *river.Config) []rivertype.Middleware
}

var chapters = []chapter{
	{title: "without a lock"},
	// The jobs of the hot account wait in all workers, and the others wait for a worker.
	{"Exclusive", func(locks *lockcore.Locker, _ *river.Config) []rivertype.Middleware {
		return []rivertype.Middleware{alone(locks)}
	}},
	// At most a third of the workers wait for the account. Its other jobs are snoozed and woken.
	{"Wake and Exclusive", func(locks *lockcore.Locker, c *river.Config) []rivertype.Middleware {
		return []rivertype.Middleware{rivermw.Wake[pgx.Tx](c), alone(locks)}
	}},
}

// alone runs one charge of an account at a time.
func alone(locks *lockcore.Locker) rivertype.Middleware {
	account := rivermw.ByArgs(func(a chargeArgs) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
	return rivermw.Exclusive(locks, account, rivermw.ExclusiveOptions{})
}

type chargeArgs struct {
	Account string `json:"account_id"`
}

func (chargeArgs) Kind() string { return "charge" }

// result says when the last job of the hot account and of the others was done, how many jobs of the
// hot account ran at once, and how many attempts were used up by conflicts.
type result struct {
	hot, others    time.Duration
	most, attempts int
}

// play charges all accounts in a schema of its own.
func (c chapter) play(ctx context.Context, pool *pgxpool.Pool) (r result, err error) {
	schema := "river_" + strings.ToLower(rand.Text())
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return r, err
	}
	defer func() {
		_, dropErr := pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+schema+" CASCADE")
		err = errors.Join(err, dropErr)
	}()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: quiet})
	if err != nil {
		return r, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return r, err
	}
	if _, err := pool.Exec(ctx, postgres.Create(schema)); err != nil {
		return r, err
	}
	locks, err := postgres.New(pool, postgres.Options{Schema: schema})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, locks.Close(context.WithoutCancel(ctx))) }()

	var s scene
	config := &river.Config{
		Schema: schema, Logger: quiet, Workers: river.NewWorkers(),
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
	}
	if c.guards != nil {
		config.Middleware = c.guards(locks, config)
	}
	river.AddWorker(config.Workers, river.WorkFunc(s.charge))
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return r, err
	}
	return s.play(ctx, client)
}

// scene counts what happens in a chapter.
type scene struct {
	mu     sync.Mutex
	began  time.Time
	inside int
	done   int
	all    chan struct{} // closed when all jobs are done

	result
}

func (s *scene) play(ctx context.Context, client *river.Client[pgx.Tx]) (r result, err error) {
	var insert []river.InsertManyParams
	for range jobs { // the jobs of the hot account come first
		insert = append(insert, river.InsertManyParams{Args: chargeArgs{Account: hot}})
	}
	for i := range jobs {
		insert = append(insert, river.InsertManyParams{Args: chargeArgs{Account: fmt.Sprint("other ", i)}})
	}
	if _, err := client.InsertManyFast(ctx, insert); err != nil {
		return r, err
	}
	s.all, s.began = make(chan struct{}), time.Now()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return r, err
	}
	select {
	case <-s.all:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err := errors.Join(err, client.Stop(context.WithoutCancel(ctx))); err != nil {
		return r, err
	}
	rows, err := client.JobList(ctx, river.NewJobListParams().First(2*jobs))
	if err != nil {
		return r, err
	}
	for _, job := range rows.Jobs {
		s.attempts += job.Attempt - 1
	}
	return s.result, nil
}

func (s *scene) charge(_ context.Context, job *river.Job[chargeArgs]) error {
	isHot := job.Args.Account == hot
	s.mu.Lock()
	if isHot {
		s.inside++
		s.most = max(s.most, s.inside)
	}
	s.mu.Unlock()
	time.Sleep(work)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := &s.others
	if isHot {
		s.inside--
		last = &s.hot
	}
	*last = time.Since(s.began)
	if s.done++; s.done == 2*jobs {
		close(s.all)
	}
	return nil
}
