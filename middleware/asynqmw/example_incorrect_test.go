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

// A key that is too narrow: the payload has a time in it, so that the same payment has another key
// each time it is sent.
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

// A handler that does not look at its ctx goes on when its key is lost, though it may have another
// holder by then.
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

// A handler that stops when its lease is lost, and says nil: under Once the half of its work is
// recorded as done. Return context.Cause(ctx), and the retry does the rest.
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

// The ctx of a handler in a goroutine that outlives it: it has ended, and holds nothing. Use
// guard.Detach's, and ask for the key anew.
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

// Two handlers take two accounts in different orders. Neither gets its second one: each waits for
// Terms.Wait and is tried again later, where it may meet the other again. Take keys in one order,
// the smaller first.
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

// Keep is shorter than the time within which the producer sends a payment again: it is charged
// twice.
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

// A result above MaxResult is not kept: the work is done and never runs again, but whoever comes
// later gets no result. Store it elsewhere, and its address here.
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

// exampleLocks returns a Locker on a Redis in the process.
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
