package asynqmw_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The mistake: Once outside of Exclusive. A task that waits for its account then holds the key of
// its payment. If its worker is killed meanwhile, that key is abandoned, although the charge has
// not begun: with guard.AtMostOnce the payment is refused. Put Exclusive outside.
func ExampleOnce_outsideExclusive_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{Mode: guard.AtMostOnce})
	waiting := func(next asynq.Handler) asynq.Handler { // runs before the task asks for its account
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			held, err := locks.Inspect(ctx, event.KindOnce, "charge/payment:7")
			fmt.Println("while the task waits for its account, the key of its payment is", held.State, err)
			return next.ProcessTask(ctx, t)
		})
	}
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	right, wrong := waiting(account(payment(charge))), payment(waiting(account(charge)))

	busy, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{}) // for another payment
	if err != nil {
		log.Fatal(err)
	}
	task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
	_ = right.ProcessTask(context.Background(), task)
	_ = wrong.ProcessTask(context.Background(), task)
	_ = busy.Release(context.Background())
	// Output:
	// while the task waits for its account, the key of its payment is free <nil>
	// while the task waits for its account, the key of its payment is held <nil>
}

// The mistake: a timeout of your own, inside of the guard, that does not wait for its handler. The
// key is released while the handler runs, and the next task of the account runs beside it. A
// timeout must only end the handler's ctx, and return after the handler.
func ExampleExclusive_timeoutGivesUp_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	task := asynq.NewTask("charge", []byte(`{"account_id": 42}`))
	begun, end, ended := make(chan bool), make(chan bool), make(chan bool)
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		begun <- true
		<-end
		close(ended)
		return nil
	})
	impatient := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		go func() { _ = charge.ProcessTask(ctx, t) }()
		<-begun
		return context.DeadlineExceeded // wrong: charge has not returned
	})
	fmt.Println(account(impatient).ProcessTask(context.Background(), task))
	second := account(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		select {
		case <-ended:
		default:
			fmt.Println("runs beside the first")
		}
		return nil
	}))
	fmt.Println(second.ProcessTask(context.Background(), task))
	close(end)
	<-ended
	// Output:
	// context deadline exceeded
	// runs beside the first
	// <nil>
}
