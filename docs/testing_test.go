package docs_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func payOut(context.Context, *asynq.Task) error { return nil }

// A payout finds its account busy, and comes back later instead of running next to the other one.
func TestPayoutBusy(t *testing.T) {
	locks := locktest.New(t)
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"),
		asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	locktest.Hold(t, locks, "account:42")
	task := asynq.NewTask("payout", []byte(`{"account_id": 42}`))
	if err := account(asynq.HandlerFunc(payOut)).ProcessTask(t.Context(), task); !errors.Is(err, lockcore.ErrBusy) {
		t.Fatalf("want busy, got %v", err)
	}
}

func charge(context.Context) error { return nil }

func TestChargeBusy(t *testing.T) {
	locks, o := locktest.New(t), guard.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}}
	release := locktest.HoldOnce(t, locks, "charge:7") // another process charges it
	if _, err := guard.Once(t.Context(), locks, "charge:7", o, charge); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("want busy, got %v", err)
	}
	release() // its run has failed
	if _, err := guard.Once(t.Context(), locks, "charge:7", o, charge); err != nil {
		t.Error(err)
	}
}

func TestChargeWaits(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, locks *lockcore.Locker) {
		time.AfterFunc(time.Hour, locktest.Hold(t, locks, "account:42"))
		began := time.Now()
		err := guard.Exclusive(t.Context(), locks, "account:42", lockcore.Terms{Wait: 2 * time.Hour}, charge)
		if waited := time.Since(began); err != nil || waited < time.Hour {
			t.Errorf("%v after %v", err, waited)
		}
	})
}

func TestOrderRepeated(t *testing.T) {
	orders := 0
	createOrder := func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
	}
	scope := func(*http.Request) (string, error) { return "alice", nil }
	api := httpmw.Idempotent(locktest.New(t), scope, httpmw.IdempotentOptions{})(http.HandlerFunc(createOrder))
	for range 2 { // the client repeats its request
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		if api.ServeHTTP(w, r); w.Code != http.StatusCreated || orders != 1 {
			t.Errorf("status %d, %d orders", w.Code, orders)
		}
	}
}
