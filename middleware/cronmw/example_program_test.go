package cronmw_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// One instance needs no Redis. Several instances need lockcore.New: see the example Instances.
func Example() { //nolint:testableexamples // it runs until it is stopped
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	jobs, err := cronmw.New(locks, cronmw.Options{})
	if err != nil {
		log.Fatal(err)
	}
	report := func(_ context.Context, t cronmw.Tick) error { log.Print("report of ", t.Time); return nil }
	if err := jobs.Add("report", "* * * * *", cronmw.Job{}, report); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Print("stopped: ", jobs.Run(ctx)) // ends at Ctrl-C
}
