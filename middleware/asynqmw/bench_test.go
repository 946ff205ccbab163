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

// BenchmarkChecks measures the part of a delivery before its first command. The Locker is closed,
// so the call ends there.
func BenchmarkChecks(b *testing.B) {
	locks := locktest.New(b)
	if err := locks.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	nothing := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	task := asynq.NewTask("charge", []byte(`{"payment_id":7}`))
	for name, h := range map[string]asynq.Handler{
		"Exclusive": asynqmw.Exclusive(locks, byPayload, asynqmw.ExclusiveOptions{})(nothing),
		"Once":      asynqmw.Once(locks, byPayload, asynqmw.OnceOptions{})(nothing),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := h.ProcessTask(b.Context(), task); !errors.Is(err, lockcore.ErrClosed) {
					b.Fatal(err)
				}
			}
		})
	}
}
