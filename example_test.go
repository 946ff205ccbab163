package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

var addr string // of the Redis behind the examples

func TestMain(m *testing.M) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	addr = server.Addr()
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// An asynq server whose handler runs once for each payment and alone for each account. It ends with
// its ctx.
func Example_asynq() {
	ctx, stop := context.WithCancel(context.Background())
	charge := func(_ context.Context, t *asynq.Task) error {
		fmt.Println("charging", string(t.Payload()))
		stop()
		return nil
	}
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	defer client.Close()
	if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"payment_id": "p1", "account_id": 42}`))); err != nil {
		panic(err)
	}
	if err := work(ctx, addr, charge); err != nil {
		panic(err)
	}
	// Output: charging {"payment_id": "p1", "account_id": 42}
}

func work(ctx context.Context, addr string, charge func(context.Context, *asynq.Task) error) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return err
	}
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})

	mux := asynq.NewServeMux()
	mux.Handle("charge", account(payment(asynq.HandlerFunc(charge)))) // alone for an account, once for a payment
	cfg := asynqmw.Configure(asynq.Config{Concurrency: 10})           // with it a busy key uses up no retry
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	if err := srv.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()   // for example of signal.NotifyContext
	srv.Shutdown() // waits for the handlers, up to cfg.ShutdownTimeout (8 s)
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return locks.Close(end) // after Shutdown, before rdb.Close
}

// An API without a server: the second POST with the same Idempotency-Key gets the recorded response.
func Example_http() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	n := 0
	api := shop(locks, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "order ", n)
	})
	for range 2 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		r.SetBasicAuth("alice", "secret")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 201 order 1
	// 201 order 1
}

func tenant(r *http.Request) (string, error) {
	user, _, ok := r.BasicAuth()
	if !ok {
		return "", errors.New("no credentials")
	}
	return user, nil
}

func shop(locks *lockcore.Locker, createOrder http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(createOrder))
	return mux
}

func payOut(context.Context, *asynq.Task) error { return nil }

// A payout finds its account busy, and comes back later instead of running beside the other one.
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
