package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The mistake: a key that is too broad. With ByType the tasks of all accounts wait for each other.
func ExampleByType_tooBroad_incorrect() {
	a, b := asynq.NewTask("charge", []byte(`{"account_id": 42}`)), asynq.NewTask("charge", []byte(`{"account_id": 43}`))
	for _, key := range []asynqmw.KeyFunc{asynqmw.ByType(), asynqmw.ByJSON("account", "/account_id")} {
		ka, _ := key(context.Background(), a)
		kb, _ := key(context.Background(), b)
		fmt.Println(ka, kb)
	}
	// Output:
	// type:charge type:charge
	// account:42 account:43
}

// The mistake: a key that is too narrow. The payload contains a time, so the same payment has
// another key each time it is sent.
func ExampleByPayload_tooNarrow_incorrect() {
	a, b := asynq.NewTask("charge", []byte(`{"payment_id": 7, "sent": "12:00:01"}`)), asynq.NewTask("charge", []byte(`{"payment_id": 7, "sent": "12:00:02"}`))
	for _, key := range []asynqmw.KeyFunc{asynqmw.ByPayload(), asynqmw.ByJSON("payment", "/payment_id")} {
		ka, _ := key(context.Background(), a)
		kb, _ := key(context.Background(), b)
		fmt.Println("the same payment has the same key:", ka == kb)
	}
	// Output:
	// the same payment has the same key: false
	// the same payment has the same key: true
}

// The mistake: a handler that does not check its ctx. It continues after it has lost its key,
// although the key may have another holder.
func ExampleExclusive_ignoresCtx_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	task := asynq.NewTask("charge", []byte(`{"account_id": 42}`))
	steps := func(obey bool) asynq.HandlerFunc {
		return func(ctx context.Context, _ *asynq.Task) error {
			for step := 1; step <= 3; step++ {
				if obey && ctx.Err() != nil {
					return context.Cause(ctx)
				}
				fmt.Println("step", step)
				if step == 1 {
					locktest.Lose(ctx) // as if Redis was unavailable for too long
				}
			}
			return nil
		}
	}
	fmt.Println(account(steps(false)).ProcessTask(context.Background(), task))
	fmt.Println(account(steps(true)).ProcessTask(context.Background(), task))
	// Output:
	// step 1
	// step 2
	// step 3
	// <nil>
	// step 1
	// lockcore: lease lost
}

// The mistake: a handler that stops when its lease is lost, and returns nil. Once records the half
// of its work as done. If it returns context.Cause(ctx), the retry does the work.
func ExampleOnce_nilAfterLoss_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	charge := payment(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		fmt.Println("begin")
		locktest.Lose(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is the mistake
		}
		fmt.Println("done")
		return nil
	}))
	for range 2 {
		fmt.Println(charge.ProcessTask(context.Background(), asynq.NewTask("charge", []byte(`{"payment_id": 7}`))))
	}
	// Output:
	// begin
	// <nil>
	// <nil>
}

// The mistake: a goroutine that outlives the handler, and uses the handler's ctx. That ctx has
// ended and holds no key. Use the ctx of guard.Detach, and acquire the key again.
func ExampleExclusive_outlives_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	returned, done := make(chan struct{}), make(chan struct{})
	charge := account(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		go func() {
			defer close(done)
			<-returned
			_, held := guard.Token(ctx, "account:42") // wrong: the key was released when the handler returned
			fmt.Println("holds the account:", held, "because:", context.Cause(ctx))
			err := guard.Exclusive(guard.Detach(ctx), locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
				guard.MustHold(ctx, "account:42") // panics if ctx does not hold the key
				return nil
			})
			fmt.Println("acquired again:", err)
		}()
		return nil
	}))
	if err := charge.ProcessTask(context.Background(), asynq.NewTask("charge", []byte(`{"account_id": 42}`))); err != nil {
		log.Fatal(err)
	}
	close(returned)
	<-done
	// Output:
	// holds the account: false because: lockcore: lease released
	// acquired again: <nil>
}

// The mistake: two handlers acquire two accounts in different orders. Each holds one account and
// waits for the other until Terms.Wait is over. The retries may meet again. Use ExclusiveAll, or
// acquire keys always in the same order.
func ExampleExclusive_nestedOrders_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	var holding, refused, end sync.WaitGroup
	holding.Add(2)
	refused.Add(2)
	transfer := func(from, to string) {
		_ = guard.Exclusive(context.Background(), locks, from, lockcore.Terms{Wait: time.Minute}, func(ctx context.Context) error {
			holding.Done()
			holding.Wait() // each handler has its first key
			err := guard.Exclusive(ctx, locks, to, lockcore.Terms{Wait: 50 * time.Millisecond}, func(context.Context) error { return nil })
			fmt.Println("busy:", errors.Is(err, lockcore.ErrBusy))
			refused.Done()
			refused.Wait()
			return err
		})
	}
	end.Go(func() { transfer("account:1", "account:2") })
	end.Go(func() { transfer("account:2", "account:1") })
	end.Wait()
	// Output:
	// busy: true
	// busy: true
}

// The mistake: a Keep that is shorter than the time in which the producer may send a payment again.
// The payment is charged twice.
func ExampleOnce_shortKeep_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{Keep: time.Second})
	charge := payment(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		fmt.Println("charged")
		return nil
	}))
	task := asynq.NewTask("charge", []byte(`{"payment_id": 7}`))
	_ = charge.ProcessTask(context.Background(), task)
	time.Sleep(1100 * time.Millisecond) // the producer sends it again; in production after hours
	_ = charge.ProcessTask(context.Background(), task)
	// Output:
	// charged
	// charged
}

// The mistake: a result above MaxResult. It is not recorded: the work is done and does not run
// again, but later tasks get no result. Store a large result elsewhere, and pass its address to
// SetResult.
func ExampleSetResult_tooLarge_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{MaxResult: 10})
	charge := payment(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		fmt.Println("charged")
		return asynqmw.SetResult(ctx, []byte("a receipt of more than ten bytes"))
	}))
	for range 2 {
		if err := charge.ProcessTask(context.Background(), asynq.NewTask("charge", []byte(`{"payment_id": 7}`))); err != nil {
			log.Fatal(err)
		}
	}
	known, err := idempotency.Lookup(context.Background(), locks, asynqmw.OnceKey("charge", guard.Key{Class: "payment", ID: "7"}))
	fmt.Println(known.State, err, "with a result:", known.Content.Ending == idempotency.Done)
	// Output:
	// charged
	// done <nil> with a result: false
}

// exampleLocks returns a Locker on a Redis in this process.
func exampleLocks() (rdb *redis.Client, locks *lockcore.Locker, stop func()) {
	rdb, closeRedis := exampleRedis()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return rdb, locks, func() {
		_ = locks.Close(context.Background())
		closeRedis()
	}
}
