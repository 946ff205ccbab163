package asynqmw_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The lease ends under a handler. asynq gets the handler's ctx error together with the cause, and
// nil if the handler returns nil.
// Shows: L15
func TestEndedLeaseIsNamed(t *testing.T) {
	_, locks, stop := exampleLocks()
	defer stop()
	key := asynqmw.ByJSON("account", "/account_id")
	task := asynq.NewTask("charge", []byte(`{"account_id": 42}`))
	for name, wrap := range map[string]asynq.MiddlewareFunc{
		"Exclusive": asynqmw.Exclusive(locks, key, asynqmw.ExclusiveOptions{}), "Once": asynqmw.Once(locks, key, asynqmw.OnceOptions{}),
	} {
		ends := func(answer func(context.Context) error) error {
			return wrap(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				locktest.Lose(ctx)
				return answer(ctx)
			})).ProcessTask(context.Background(), task)
		}
		if err := ends(func(ctx context.Context) error { return ctx.Err() }); !errors.Is(err, lockcore.ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if err := ends(func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s succeeded: %v", name, err)
		}
	}
}
