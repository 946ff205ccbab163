package tracing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// A call on a majority of servers has one span, which names the servers. A call that a majority cannot
// do has another outcome.
func TestQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tracing.Options{})
		locks, err := lockcore.NewQuorum(redistest.Masters(t), lockcore.Options{Observer: r.Observer})
		if err != nil {
			t.Fatal(err)
		}
		terms := lockcore.Terms{Name: "account"}
		err = guard.Exclusive(t.Context(), locks, "account:"+canary, terms, func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := guard.Shared(t.Context(), locks, "account:"+canary, terms, nothing); !errors.Is(err, lockcore.ErrUnsupported) {
			t.Error(err)
		}
		if err := locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) // a go-redis subscription sleeps 100 ms after an error before it notices that it is closed
		r.addsUp(t)
		const name = "a majority of 10.0.0.1:6379, 10.0.0.2:6379, 10.0.0.3:6379"
		for span, outcome := range map[string]string{"exclusive account": "completed", "shared account": "unsupported"} {
			if a := attrs(r.span(t, span)); a["holdfast.backend"] != name || a["holdfast.outcome"] != outcome {
				t.Errorf("%s: %v", span, a)
			}
		}
	})
}

func nothing(context.Context) error { return nil }
