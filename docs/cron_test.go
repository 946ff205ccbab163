package docs_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// serveReport runs the report of a pod until ctx ends. It begins again whenever the configuration
// has a new spec.
func serveReport(ctx context.Context, locks *lockcore.Locker, specs <-chan string, job cronmw.Job, report func(context.Context, cronmw.Tick) error) error {
	for spec := <-specs; ctx.Err() == nil; {
		jobs, err := cronmw.New(locks, cronmw.Options{})
		if err != nil {
			return err
		}
		if err := jobs.Add("report", spec, job, report); err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- jobs.Run(running) }()
		select {
		case spec = <-specs:
		case <-ctx.Done():
		}
		stop()
		if err := <-ended; err != nil { // after the run under way, if there is one
			return err
		}
	}
	return nil
}

// reportLog records the ticks that ran.
type reportLog struct {
	mu    sync.Mutex
	ticks []string
}

func (r *reportLog) report(_ context.Context, t cronmw.Tick) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticks = append(r.ticks, t.Time.Format("15:04"))
	return nil
}

func (r *reportLog) want(t *testing.T, ticks ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.ticks, ticks) {
		t.Errorf("ran the ticks %v, want %v", r.ticks, ticks)
	}
}

// Five pods get a new spec while they run. Before and after it each tick runs once.
func TestCronReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := locktest.NewServer(t), &reportLog{}
		ctx, cancel := context.WithCancel(t.Context())
		var ended []chan error
		var pods []chan string
		for range 5 {
			specs, end := make(chan string, 1), make(chan error, 1)
			locks := server.Locker(lockcore.Options{})
			go func() { end <- serveReport(ctx, locks, specs, cronmw.Job{Standby: true}, r.report) }()
			pods, ended = append(pods, specs), append(ended, end)
			specs <- "*/10 * * * *"
		}
		time.Sleep(25 * time.Minute)
		for _, specs := range pods {
			specs <- "*/15 * * * *"
		}
		time.Sleep(25 * time.Minute)
		r.want(t, "00:10", "00:20", "00:30", "00:45")
		cancel()
		for _, end := range ended {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// scheduled runs the report of a pod on a robfig/cron, until ctx ends.
func scheduled(ctx context.Context, locks *lockcore.Locker, report func(context.Context, cronmw.Tick) error) error {
	c := cron.New(cron.WithLocation(time.UTC)) // the default zone is the machine's
	_, err := cronmw.AddTo(c, locks, "report", "0 7 * * *", cronmw.Job{Standby: true}, report)
	if err != nil {
		return err
	}
	c.Start()
	<-ctx.Done()
	stopped := c.Stop()
	err = locks.Close(context.Background()) // ends standby waits at once, and the running job's ctx after 30 s
	<-stopped.Done()
	return err
}

// Five pods have the job on a robfig/cron. Each tick runs once, and all pods stop while one of them
// runs the last tick.
func TestCronAddTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := locktest.NewServer(t), &reportLog{}
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error)
		for range 5 {
			locks := server.Locker(lockcore.Options{})
			go func() {
				end <- scheduled(ctx, locks, func(ctx context.Context, tick cronmw.Tick) error {
					time.Sleep(10 * time.Second)
					return r.report(ctx, tick)
				})
			}()
		}
		time.Sleep(31*time.Hour + 5*time.Second)
		cancel()
		for range 5 {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
		r.want(t, "07:00", "07:00")
	})
}
