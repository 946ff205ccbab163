package rivermw_test

import (
	"context"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
	"github.com/holdfast-go/holdfast/postgres"
)

// ChargeArgs are the args of a charge.
type ChargeArgs struct {
	Payment string `json:"payment_id"`
	Account string `json:"account_id"`
}

// Kind returns the kind of the jobs.
func (ChargeArgs) Kind() string { return "charge" }

// ChargeWorker charges the payment of a job.
type ChargeWorker struct {
	river.WorkerDefaults[ChargeArgs]
}

// Work passes h.Key, which is the same in every run of a payment, to the provider.
func (*ChargeWorker) Work(ctx context.Context, job *river.Job[ChargeArgs]) error {
	h, _ := guard.Current(ctx)
	log.Printf("charging account %s for %s", job.Args.Account, h.Key)
	return nil
}

// serve works jobs until ctx ends.
func serve(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, postgres.Create("")); err != nil { // or with your migrations
		return err
	}
	locks, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		return err
	}
	// {"payment_id": "7", "account_id": "42"} has the keys charge/payment:7 and account:42.
	payment := rivermw.ByArgs(func(a ChargeArgs) guard.Key { return guard.Key{Class: "payment", ID: a.Payment} })
	account := rivermw.ByArgs(func(a ChargeArgs) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
	config := &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:       river.NewWorkers(),
		FetchCooldown: 50 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	}
	config.Middleware = []rivertype.Middleware{
		rivermw.Wake[pgx.Tx](config),                                  // first: waiting jobs leave the workers
		rivermw.Exclusive(locks, account, rivermw.ExclusiveOptions{}), // alone for an account
		rivermw.Once(locks, payment, rivermw.OnceOptions{}),           // once for a payment
	}
	river.AddWorker(config.Workers, &ChargeWorker{})
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil { // else the end of ctx cancels the jobs
		return err
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := client.Stop(end); err != nil { // waits for the jobs
		return err
	}
	return locks.Close(end) // after Stop, before pool.Close
}
