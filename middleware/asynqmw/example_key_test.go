package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The tenant is in a header that the enqueuing service sets, so the payload need not name it.
func ExampleByHeader() {
	key := asynqmw.ByHeader("tenant", "x-tenant")
	fmt.Println(key(context.Background(), asynq.NewTaskWithHeaders("report", nil, map[string]string{"x-tenant": "acme"})))
	_, err := key(context.Background(), asynq.NewTask("report", nil))
	fmt.Println(err)
	// Output:
	// tenant:acme <nil>
	// header "x-tenant" is missing or empty
}

// A payment is enqueued again with another time, and then with another amount. Except ignores the
// time. Without it WholePayload would refuse the second task too.
func ExampleExcept() {
	exampleCharges(asynqmw.Except("/sent_at"),
		`{"payment_id": 7, "amount": 10, "sent_at": "09:00"}`,
		`{"payment_id": 7, "amount": 10, "sent_at": "09:05"}`,
		`{"payment_id": 7, "amount": 11, "sent_at": "09:10"}`)
	// Output:
	// charged
	// replayed
	// refused
}

// A payload with its values in another order, or with another form of a number, is equal. Another
// amount is refused.
func ExampleWholePayload() {
	exampleCharges(asynqmw.WholePayload,
		`{"payment_id": 7, "amount": 10}`,
		`{"amount": 10.0, "payment_id": 7}`,
		`{"payment_id": 7, "amount": 11}`)
	// Output:
	// charged
	// replayed
	// refused
}

// exampleCharges processes tasks of a payment one after the other.
func exampleCharges(same asynqmw.FingerprintFunc, payloads ...string) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	ran := false
	charge := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{Fingerprint: same})(
		asynq.HandlerFunc(func(context.Context, *asynq.Task) error { ran = true; return nil }))
	for _, payload := range payloads {
		ran = false
		switch err := charge.ProcessTask(context.Background(), asynq.NewTask("charge", []byte(payload))); {
		case errors.Is(err, lockcore.ErrMismatch):
			fmt.Println("refused")
		case err != nil:
			log.Fatal(err)
		case ran:
			fmt.Println("charged")
		default:
			fmt.Println("replayed")
		}
	}
}
