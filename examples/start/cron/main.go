// Command cron is the program of docs/cron.md: one of several pods that run the same cron job.
//
//	REDIS_ADDR=localhost:6379 go run ./examples/start/cron
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")})
	defer rdb.Close()
	if err := run(ctx, rdb, report); err != nil {
		log.Print(err)
	}
}

// run runs the jobs of this pod until ctx ends.
func run(ctx context.Context, rdb redis.UniversalClient, report func(context.Context, cronmw.Tick) error) error {
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())
	jobs, err := cronmw.New(locks, cronmw.Options{CancelOnStop: true}) // SIGTERM ends the job's ctx too
	if err != nil {
		return err
	}
	job := cronmw.Job{
		Standby:  true,                                   // if this pod dies, another one runs the tick again
		CatchUp:  cronmw.CatchUpLatest,                   // if all pods are down at 07:00, the first one to start runs it
		Terms:    lockcore.Terms{MaxHold: 2 * time.Hour}, // a report that hangs ends after two hours
		OnResult: logged,
	}
	if err := jobs.Add("report", "CRON_TZ=Europe/Rome 0 7 * * *", job, report); err != nil {
		return err
	}
	return jobs.Run(ctx) // until SIGTERM; then it waits for the running job
}

// report is the job. Pass ctx to every call, because it ends when the pod may no longer run the
// tick.
func report(ctx context.Context, t cronmw.Tick) error {
	log.Print("report of ", t.Time)
	return ctx.Err()
}

func logged(r cronmw.Result) {
	if r.Outcome != cronmw.Elsewhere { // another pod runs the tick, or has decided it
		log.Print(r.Tick, ": ", r.Outcome, ", ", r.Err)
	}
}
