package rivermw_test //nolint:testableexamples // the Example needs a PostgreSQL

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
	"github.com/holdfast-go/holdfast/postgres"
)

// Args are the args of a charge.
type Args struct {
	Account string `json:"account_id"`
}

// Kind returns the kind of the jobs.
func (Args) Kind() string { return "charge" }

// The database has the tables of River (river migrate-up) and of holdfast (postgres.Create).
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/test")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	account := rivermw.ByArgs(func(a Args) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[Args]) error {
		fmt.Println("charging", job.Args.Account)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:    workers,
		Middleware: []rivertype.Middleware{rivermw.Exclusive(locks, account, rivermw.ExclusiveOptions{})},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Start(ctx); err != nil {
		log.Fatal(err)
	}
	<-client.Stopped()
}
