package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The mistake: a timeout that is shorter than the work. On the last attempt asynq archives the
// task, although its handler returns nil later. Give the task more time than its work takes. Under
// Once the late success is recorded, and a further run of the task does nothing.
func ExampleExclusive_shortTimeout_incorrect() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	worked := make(chan struct{})
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	serve(rdb, 1, account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		<-worked
		return nil
	})), func(client *asynq.Client) {
		defer close(worked)
		enqueue(client, asynq.NewTask("charge", []byte(`{"account_id": 42}`)), asynq.TaskID("charge"), asynq.Timeout(time.Second), asynq.MaxRetry(0))
		for {
			info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", "charge")
			if err != nil {
				log.Fatal(err)
			}
			if info.State == asynq.TaskStateArchived {
				fmt.Println(info.State, info.LastErr)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	// Output: archived context deadline exceeded
}

// The mistake: a task without retries. If its key is busy until its deadline, asynq archives it
// with an error that names the holder. Give tasks whose conflicts matter at least one retry.
// Conflicts do not use it up.
func ExampleExclusive_noRetry_incorrect() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	held, err := locks.Acquire(lockcore.WithTask(context.Background(), "nightly-report"), "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	failed := make(chan error, 1)
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	h := account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
	serve(rdb, 1, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := h.ProcessTask(ctx, t)
		failed <- err
		return err
	}), func(client *asynq.Client) {
		enqueue(client, asynq.NewTask("charge", []byte(`{"account_id": 42}`)), asynq.MaxRetry(0), asynq.Timeout(time.Second))
		if busy, ok := errors.AsType[*lockcore.BusyError](<-failed); ok {
			fmt.Println("lost to", busy.Holder.Task)
		}
	})
	_ = held.Release(context.Background())
	// Output: lost to nightly-report
}

// The mistake: one account has as many tasks as there are workers. The tasks that wait for the
// account occupy the workers, and the tasks of other accounts wait too. Turn on Parking, use a
// queue and a server for hot keys, or shorten Terms.Wait.
func ExampleExclusive_lowConcurrency_incorrect() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	held, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: 300 * time.Millisecond}})
	charged := make(chan time.Duration, 1)
	began := time.Now()
	serve(rdb, 1, account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		charged <- time.Since(began)
		return nil
	})), func(client *asynq.Client) {
		enqueue(client, asynq.NewTask("charge", []byte(`{"account_id": 42}`)))
		enqueue(client, asynq.NewTask("charge", []byte(`{"account_id": 43}`)))
		fmt.Println("account 43 waited for account 42:", <-charged >= 300*time.Millisecond)
	})
	_ = held.Release(context.Background())
	// Output: account 43 waited for account 42: true
}

// The mistake: a handler enqueues its own task again, with Unique or with its own ID. asynq refuses
// that until the handler has returned, because the task still exists. Return an error for a retry,
// or enqueue the next step as another task. Exclusive needs no Unique.
func ExampleExclusive_enqueueSelf_incorrect() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	task := asynq.NewTask("charge", []byte(`{"account_id": 42}`))
	client := asynq.NewClientFromRedisClient(rdb)
	refused := make(chan error, 2)
	serve(rdb, 1, account(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask(t.Type(), t.Payload()), asynq.Unique(time.Hour), asynq.ProcessIn(time.Minute))
		refused <- err
		_, err = client.EnqueueContext(ctx, asynq.NewTask(t.Type(), t.Payload()), asynq.TaskID("charge-42"), asynq.ProcessIn(time.Minute))
		refused <- err
		return nil
	})), func(client *asynq.Client) {
		enqueue(client, task, asynq.TaskID("charge-42"), asynq.Unique(time.Hour))
		fmt.Println(<-refused)
		fmt.Println(<-refused)
	})
	// Output:
	// task already exists
	// task ID conflicts with another task
}

// The mistake: a server without Configure. The conflict uses up a retry, and the error has the
// reason.
func ExampleConfigure_forgotten_incorrect() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	held, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 1, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
		IsFailure: func(err error) bool {
			const why = "asynqmw: a conflict uses up a retry, because asynqmw.Configure was not used"
			fmt.Println(err.Error()[:len(why)])
			return true
		},
	})
	if err := srv.Start(account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))); err != nil {
		log.Fatal(err)
	}
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	enqueue(client, asynq.NewTask("charge", []byte(`{"account_id": 42}`)), asynq.TaskID("charge"))
	for retried := 0; retried == 0; time.Sleep(10 * time.Millisecond) {
		info, err := inspector.GetTaskInfo("default", "charge")
		if err != nil {
			log.Fatal(err)
		}
		retried = info.Retried
	}
	srv.Shutdown()
	_ = held.Release(context.Background())
	// Output: asynqmw: a conflict uses up a retry, because asynqmw.Configure was not used
}

// The mistake: a recover inside of the guard. The guard sees a handler that has returned. With
// AtMostOnce a panic must leave the key abandoned, because its outcome is unknown. Here it is
// recorded as a failure with a known outcome.
func ExampleOnce_recoverInside_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{Mode: guard.AtMostOnce})
	panics := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("after the money was sent") })
	for id, h := range []asynq.Handler{recovered(payment(panics)), payment(recovered(panics))} {
		task := asynq.NewTask("charge", fmt.Appendf(nil, `{"payment_id": %d}`, id))
		_ = h.ProcessTask(context.Background(), task)
		held, err := locks.Inspect(context.Background(), event.KindOnce, asynqmw.OnceKey("charge", guard.Key{Class: "payment", ID: fmt.Sprint(id)}))
		fmt.Println(held.State, err)
	}
	// Output:
	// abandoned <nil>
	// done <nil>
}

// The mistake: Skip inside a Once. The middleware with Skip returns nil for a skipped task, and
// Once records the task as done.
func ExampleOnce_skipInside_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"),
		asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}, Busy: asynqmw.Skip})
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	h := payment(account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		fmt.Println("charged")
		return nil
	})))
	held, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
	fmt.Println(h.ProcessTask(context.Background(), task))
	_ = held.Release(context.Background())
	fmt.Println(h.ProcessTask(context.Background(), task))
	// Output:
	// <nil>
	// <nil>
}

// serve runs a server until use returns.
func serve(rdb *redis.Client, workers int, h asynq.Handler, use func(*asynq.Client)) {
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{
		Concurrency: workers, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
	}))
	if err := srv.Start(h); err != nil {
		log.Fatal(err)
	}
	use(asynq.NewClientFromRedisClient(rdb))
	srv.Shutdown()
}

func enqueue(client *asynq.Client, t *asynq.Task, opts ...asynq.Option) {
	if _, err := client.Enqueue(t, opts...); err != nil {
		log.Fatal(err)
	}
}
