package asynqmw_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The mistake: Exclusive outside of Once. A task whose payment is done waits for the account before
// Once replays it. Put Once outside.
func ExampleExclusive_outsideOnce_incorrect() {
	_, locks, stop := exampleLocks()
	defer stop()
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
	right, wrong := payment(account(charge)), account(payment(charge)) // wrong: the second
	fmt.Println("paid:", right.ProcessTask(context.Background(), task))

	held, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{}) // for another payment
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("again, Once outside:", right.ProcessTask(context.Background(), task))
	fmt.Println("again, Exclusive outside, has to wait:", wrong.ProcessTask(context.Background(), task) != nil)
	_ = held.Release(context.Background())
	// Output:
	// paid: <nil>
	// again, Once outside: <nil>
	// again, Exclusive outside, has to wait: true
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
