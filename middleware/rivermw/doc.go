// Package rivermw provides middlewares for River workers: a job runs once, alone, next to a limited
// number of others, or at a rate.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/jackc/pgx/v5/pgxpool"
//		"github.com/riverqueue/river"
//		"github.com/riverqueue/river/riverdriver/riverpgxv5"
//		"github.com/riverqueue/river/rivertype"
//
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/middleware/rivermw"
//		"github.com/holdfast-go/holdfast/postgres"
//	)
//
//	type Args struct {
//		Account string `json:"account_id"`
//	}
//
//	func (Args) Kind() string { return "charge" }
//
//	func main() {
//		ctx := context.Background()
//		pool, err := pgxpool.New(ctx, "postgres://localhost/test")
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer pool.Close()
//		locks, err := postgres.New(pool, postgres.Options{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		account := rivermw.ByArgs(func(a Args) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
//		workers := river.NewWorkers()
//		river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[Args]) error {
//			fmt.Println("charging", job.Args.Account)
//			return nil
//		}))
//		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
//			Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
//			Workers:    workers,
//			Middleware: []rivertype.Middleware{rivermw.Exclusive(locks, account, rivermw.ExclusiveOptions{})},
//		})
//		if err != nil {
//			log.Fatal(err)
//		}
//		if err := client.Start(ctx); err != nil {
//			log.Fatal(err)
//		}
//		<-client.Stopped()
//	}
//
// The database needs the tables of River and of holdfast, see postgres.Create. A Locker on Redis
// works too.
//
//   - [Once]: after a job of a key has succeeded, the work of that key is not done again within Keep.
//   - [Exclusive]: no two jobs of a key run at the same time.
//   - [Limited]: at most n jobs of a key run at once.
//   - [Throttled]: a key's jobs begin at a rate. guard.Paused stops them for a time.
//   - [Wake]: jobs of a busy key leave the workers, and are woken when it is free.
//
// River's UniqueOpts limit which jobs are inserted. They do not prevent two runs: River gives a job to
// another worker after RescueStuckJobsAfter (1 h), although its first run may continue.
//
// The page docs/river.md has a worker to start from, and explains conflicts and waking.
//
// # Guarantees
//
//   - The key belongs to one run of the handler, not to the job. It is held until the handler has
//     returned.
//   - A job that finds its key busy is snoozed. That uses up no attempt, calls no ErrorHandler, and
//     also applies to its last attempt. The same holds while the server of the keys is unavailable.
//   - The handler's ctx is canceled before the lease can end, at the job's timeout, and when River
//     cancels the job.
//   - A panic releases the key and passes on. Under Once it leaves the key abandoned after a takeover
//     or with guard.AtMostOnce.
//
// # Limits
//
//   - If a process dies between the effect and the record, the outcome is unknown.
//     [OnceOptions].Mode decides what the next attempt does. An effect in River's own database needs
//     none of this: use river.JobCompleteTx in the transaction of the effect.
//   - The keys of a killed worker are busy for at most one lease. River brings its jobs again after
//     RescueStuckJobsAfter.
//   - For several keys call guard.ExclusiveAll in the handler. The job then waits in its worker.
//
// # What you must do
//
//   - Choose a key that names what must not be used twice at a time, see [KeyFunc].
//   - Put Wake first, Exclusive next and Once last, in one list. River runs the list of
//     river.Worker.Middleware around that of river.Config.Middleware.
//   - Check ctx in the handler, and return context.Cause(ctx) when it has ended. If the handler
//     returns nil then, Once records half of a run as done.
//   - Call client.Stop, then locks.Close, then pool.Close.
//
// # Testing
//
// A middleware needs no River client: call its Work with a rivertype.JobRow. Package locktest makes
// keys busy, abandoned or lost.
package rivermw
