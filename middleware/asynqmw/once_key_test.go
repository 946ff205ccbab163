package asynqmw_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Key returns the key of the innermost Once: the text that guard.Attempt and OnceKey use. It is
// empty outside of a Once, also under Exclusive, and for a task that runs unguarded.
func TestKey(t *testing.T) {
	inBubble(t, func(w *world) {
		var got string
		h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			got = asynqmw.Key(ctx)
			if attempt, _ := guard.Attempt(ctx, got); got != "" && attempt != 1 || asynqmw.Key(guard.Detach(ctx)) != got {
				w.Errorf("Key is %q, whose attempt is %d; detached %q", got, attempt, asynqmw.Key(guard.Detach(ctx)))
			}
			return nil
		})
		once := func(class string) asynq.MiddlewareFunc {
			return asynqmw.Once(w.locks, func(_ context.Context, t *asynq.Task) (guard.Key, error) {
				if class == "" {
					return guard.Key{}, guard.Unguarded
				}
				return guard.Key{Class: class, ID: string(t.Payload())}, nil
			}, asynqmw.OnceOptions{})
		}
		account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{})
		for _, test := range []struct {
			name string
			h    asynq.Handler
			want string
		}{
			{"no guard", h, ""},
			{"Exclusive", account(h), ""},
			{"Once", once("a")(h), asynqmw.OnceKey("charge", guard.Key{Class: "a", ID: "7"})},
			{"Once inside", account(once("b")(h)), "charge/b:7"},
			{"Once outside", once("c")(account(h)), "charge/c:7"},
			{"Once in Once", once("d")(once("e")(h)), "charge/e:7"},
			{"unguarded", once("")(h), ""},
			{"unguarded in Once", once("f")(once("")(h)), "charge/f:7"},
		} {
			got = "not run"
			if err := test.h.ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7"))); err != nil || got != test.want {
				w.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
			}
		}
	})
}
