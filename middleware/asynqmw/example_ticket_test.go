package asynqmw_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A task reserves stock and transfers its hold of the account to the task that settles. No other
// task of the account runs in between.
func ExampleExclusive_ticket() {
	var locks *lockcore.Locker // from lockcore.New
	var client *asynq.Client   // from asynq.NewClient
	reserve := func(ctx context.Context, t *asynq.Task) error {
		// … reserve, then:
		ticket, err := guard.Ticket(ctx, "account:42", time.Hour)
		if err != nil {
			return err
		}
		settle := asynq.NewTaskWithHeaders("settle", t.Payload(), map[string]string{asynqmw.HeaderTicket: ticket})
		if _, err := client.EnqueueContext(guard.Detach(ctx), settle); err != nil { // release the key
			lease, adoptErr := locks.Adopt(guard.Detach(ctx), ticket, lockcore.Terms{})
			if adoptErr == nil {
				_ = lease.Release(guard.Detach(ctx))
			}
			return err
		}
		return nil
	}
	settle := func(context.Context, *asynq.Task) error { return nil }
	serve := func() {
		account := asynqmw.ByJSON("account", "/account")
		mux := asynq.NewServeMux()
		mux.Handle("reserve", asynqmw.Exclusive(locks, account, asynqmw.ExclusiveOptions{})(asynq.HandlerFunc(reserve)))
		mux.Handle("settle", asynqmw.Exclusive(locks, account, asynqmw.ExclusiveOptions{Adopt: true})(asynq.HandlerFunc(settle)))
	}
	_ = serve
	fmt.Println("the ticket is in the header", asynqmw.HeaderTicket)
	// Output: the ticket is in the header holdfast-ticket
}
