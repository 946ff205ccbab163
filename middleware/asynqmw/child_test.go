package asynqmw_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

func TestMain(m *testing.M) {
	process.Work(order.serve)
	flag.Parse()
	logging.Disable()                   // some tests cause faults
	_ = flag.Set("test.parallel", "32") // parallel tests mostly wait for asynq, so more of them than CPUs can run
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// order is the JSON line that a child process gets. The child serves the tasks of one Redis, and
// its guards use another one.
type order struct {
	Asynq, Locks string // addresses
	Hang         bool   // true: the handler reports that it has begun and never returns; false: it works for 50 ms
	Workers      int
	Terms        lockcore.Terms
	Parks        string   // the queue that it serves, with parking; empty: the default queue without parking
	Charges      *charges // it charges payments of one account; nil: it does not
	Log          string   // address of asynq's Redis that no fault affects, for a log of deliveries and runs; empty: none
}

// account is the work of one child.
type account struct {
	Deliveries int       // of tasks to the guard
	Runs       int       // of the handler
	Overlaps   int       // runs that began while another one was inside, in any process
	Commands   int       // sent for locks
	End        time.Time // of the last run
}

// serve is the main function of a child process. It serves after a line on its standard input,
// until that input is closed.
func (o order) serve(in *bufio.Scanner) error {
	var commands redistest.Counter
	co := &redis.Options{Addr: o.Locks}
	co.Dialer = commands.Dial(redis.NewDialer(co))
	lockRedis := redis.NewClient(co)
	defer func() { _ = lockRedis.Close() }()
	locks, err := lockcore.New(lockRedis, lockcore.Options{})
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.Asynq})
	defer func() { _ = rdb.Close() }()
	w := &hotWorker{order: o, rdb: rdb}
	if o.Log != "" {
		w.log = redis.NewClient(&redis.Options{Addr: o.Log})
		defer func() { _ = w.log.Close() }()
	}
	guarded := asynqmw.Once(locks, byPayload, asynqmw.OnceOptions{Terms: o.Terms})(asynq.HandlerFunc(w.hang))
	if !o.Hang {
		guarded = asynqmw.Exclusive(locks, byPayload, asynqmw.ExclusiveOptions{Terms: o.Terms})(asynq.HandlerFunc(w.work))
	}
	if o.Charges != nil {
		guarded = o.Charges.guarded(locks, o.Terms, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if err := o.Charges.charge(ctx, rdb, t, true); err != nil {
				return err
			}
			select {} // until it is killed
		}))
	}
	cfg, configure := asynq.Config{Concurrency: o.Workers, LogLevel: asynq.FatalLevel}, asynqmw.Configure
	if o.Parks != "" {
		cfg.Queues, cfg.TaskCheckInterval = map[string]int{o.Parks: 1}, 10*time.Millisecond
		configure = func(cfg asynq.Config) asynq.Config {
			return asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(rdb)})
		}
	}
	if o.Charges != nil {
		cfg.Queues, cfg.TaskCheckInterval = map[string]int{o.Charges.Queue: 1}, 10*time.Millisecond
	}
	srv := asynq.NewServerFromRedisClient(rdb, configure(cfg))
	in.Scan()
	if err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		w.note(func(a *account) { a.Deliveries++ })
		if o.Charges != nil {
			if err := rdb.Incr(ctx, "delivered:"+o.Charges.Queue).Err(); err != nil {
				return err
			}
		}
		if o.Log != "" {
			info, err := asynq.NewInspectorFromRedisClient(w.log).GetTaskInfo(o.Parks, t.ResultWriter().TaskID())
			if err != nil {
				return err
			}
			w.write(t, info.LastErr)
		}
		return guarded.ProcessTask(ctx, t)
	})); err != nil {
		return err
	}
	in.Scan()
	srv.Shutdown()
	if err := locks.Close(context.Background()); err != nil {
		return err
	}
	w.Commands = len(commands.Commands())
	process.WriteLine(os.Stdout, w.account)
	return nil
}

type hotWorker struct {
	order

	rdb, log *redis.Client
	mu       sync.Mutex
	account
}

// line is a line of the log: a delivery, the begin or the end of a run.
type line struct {
	Process         int
	Task, Key, What string
}

const (
	begins = "begins"
	ended  = "ended"
)

func (w *hotWorker) write(t *asynq.Task, what string) {
	if w.log != nil {
		text, _ := json.Marshal(line{os.Getpid(), t.ResultWriter().TaskID(), string(t.Payload()), what})
		w.log.RPush(context.Background(), "log", text)
	}
}

func (w *hotWorker) note(f func(*account)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.account)
}

func (w *hotWorker) hang(context.Context, *asynq.Task) error {
	process.WriteLine(os.Stdout, account{Runs: 1})
	select {}
}

// work is inside for 50 ms. A counter in Redis has the number of runs inside, in all processes.
func (w *hotWorker) work(ctx context.Context, t *asynq.Task) error {
	ctx = context.WithoutCancel(ctx)
	if w.log != nil {
		w.write(t, begins)
		time.Sleep(50 * time.Millisecond)
		w.write(t, ended)
		return nil
	}
	n, err := w.rdb.Incr(ctx, "inside").Result()
	if err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond)
	w.note(func(a *account) {
		a.Runs++
		a.End = time.Now()
		if n > 1 {
			a.Overlaps++
		}
	})
	return w.rdb.Decr(ctx, "inside").Err()
}

// childProcess is a child that has started. It serves after serve was called.
type childProcess struct {
	*process.Process
	said <-chan account
}

func (w *world) start(o order) *childProcess {
	w.Helper()
	p, said := process.Listen[account](w, o)
	return &childProcess{p, said}
}

// serve makes the child begin to serve.
func (p *childProcess) serve() { p.Tell("") }
