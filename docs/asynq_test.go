package docs_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// asynqWorker is an asynq server with its client and a Locker, on a Redis in this process.
type asynqWorker struct {
	rdb    *redis.Client
	locks  *lockcore.Locker
	client *asynq.Client
}

func newAsynqWorker(t *testing.T) asynqWorker {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire, as in Redis
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return asynqWorker{rdb, locks, asynq.NewClientFromRedisClient(rdb)}
}

// serve runs handler until the test ends.
func (w asynqWorker) serve(t *testing.T, cfg asynq.Config, handler asynq.Handler) {
	t.Helper()
	srv := asynq.NewServerFromRedisClient(w.rdb, cfg)
	if err := srv.Start(handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
}

func (w asynqWorker) enqueue(t *testing.T, kind, payload string) {
	t.Helper()
	if _, err := w.client.EnqueueContext(t.Context(), asynq.NewTask(kind, []byte(payload))); err != nil {
		t.Fatal(err)
	}
}

// newest rebuilds the index of an account. It is postponed until no change came for 5 s, for at
// most a minute.
func newest(locks *lockcore.Locker, rebuild asynq.Handler) asynq.Handler {
	o := asynqmw.LatestOptions{Delay: 5 * time.Second, MaxDelay: time.Minute}
	return asynqmw.Latest(locks, asynqmw.ByJSON("account", "/account_id"), o)(rebuild)
}

// A change is postponed, because another one may follow.
func TestNewest(t *testing.T) {
	w := newAsynqWorker(t)
	h := newest(w.locks, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		t.Error("it runs at once")
		return nil
	}))
	err := h.ProcessTask(t.Context(), asynq.NewTask("rebuild", []byte(`{"account_id": 42}`)))
	if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "postponed for 5s") {
		t.Error(err)
	}
}

// transfers runs a transfer while it holds both accounts.
func transfers(locks *lockcore.Locker, handler asynq.Handler) asynq.Handler {
	from, to := asynqmw.ByJSON("account", "/from"), asynqmw.ByJSON("account", "/to")
	accounts := func(ctx context.Context, t *asynq.Task) ([]guard.Key, error) {
		a, errA := from(ctx, t)
		b, errB := to(ctx, t)
		return []guard.Key{a, b}, cmp.Or(errA, errB)
	}
	return asynqmw.ExclusiveAll(locks, accounts, asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: time.Minute}})(handler)
}

// Opposite transfers do not deadlock, and each holds both accounts.
func TestTransfers(t *testing.T) {
	w := newAsynqWorker(t)
	balance := map[string]int{"1": 100, "2": 100} // needs no mutex, because each transfer holds both accounts
	var done sync.WaitGroup
	done.Add(20)
	w.serve(t, asynqmw.Configure(asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}), transfers(w.locks, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		defer done.Done()
		var p struct{ From, To string }
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		balance[p.From]--
		balance[p.To]++
		return nil
	})))
	for range 10 {
		w.enqueue(t, "transfer", `{"from": "1", "to": "2"}`)
		w.enqueue(t, "transfer", `{"from": "2", "to": "1"}`)
	}
	done.Wait()
	if balance["1"] != 100 || balance["2"] != 100 {
		t.Errorf("the balance is %v", balance)
	}
}

// reserve reserves stock, and lets the task "settle" continue with the same hold of the account.
func reserve(locks *lockcore.Locker, client *asynq.Client) asynq.HandlerFunc {
	return func(ctx context.Context, t *asynq.Task) error {
		// … reserve, then:
		ticket, err := guard.Ticket(ctx, "account:42", time.Hour) // ends ctx
		if err != nil {
			return err
		}
		ctx = guard.Detach(ctx)
		settle := asynq.NewTaskWithHeaders("settle", t.Payload(), map[string]string{asynqmw.HeaderTicket: ticket})
		if _, err := client.EnqueueContext(ctx, settle); err != nil {
			if lease, adoptErr := locks.Adopt(ctx, ticket, lockcore.Terms{}); adoptErr == nil {
				_ = lease.Release(ctx) // otherwise the key is held for the hour
			}
			return err
		}
		return nil
	}
}

// No other task of the account runs between reserve and settle, and settle has a greater token. If
// the queue is unavailable, the key is free.
func TestReserve(t *testing.T) {
	w := newAsynqWorker(t)
	var first, second, tries atomic.Int64
	settled := make(chan struct{})
	account := asynqmw.ByJSON("account", "/account")
	mux := asynq.NewServeMux()
	mux.Handle("reserve", asynqmw.Exclusive(w.locks, account, asynqmw.ExclusiveOptions{})(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		token, _ := guard.Token(ctx, "account:42")
		first.Store(token)
		return reserve(w.locks, w.client)(ctx, task)
	})))
	mux.Handle("settle", asynqmw.Exclusive(w.locks, account, asynqmw.ExclusiveOptions{Adopt: true})(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer close(settled)
		token, _ := guard.Token(ctx, "account:42")
		second.Store(token)
		_, err := w.locks.Acquire(context.Background(), "account:42", lockcore.Terms{Wait: lockcore.NoWait})
		if err != nil {
			tries.Add(1)
		}
		return nil
	})))
	w.serve(t, asynqmw.Configure(asynq.Config{LogLevel: asynq.FatalLevel}), mux)
	w.enqueue(t, "reserve", `{"account": 42}`)
	<-settled
	if first.Load() == 0 || second.Load() <= first.Load() || tries.Load() != 1 {
		t.Errorf("tokens %d and %d, %d other calls found the key busy", first.Load(), second.Load(), tries.Load())
	}

	closed := redis.NewClient(w.rdb.Options())
	_ = closed.Close()
	err := guard.Exclusive(t.Context(), w.locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
		return reserve(w.locks, asynq.NewClientFromRedisClient(closed))(ctx, asynq.NewTask("reserve", []byte(`{"account": 42}`)))
	})
	if err == nil {
		t.Error("the task was enqueued through a closed client")
	}
	lease, err := w.locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.NoWait})
	if err != nil {
		t.Fatalf("the key is not free: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker with parking does the tasks of another account while 20 tasks wait for one key.
func TestParkingOfThePage(t *testing.T) {
	w := newAsynqWorker(t)
	rdb := w.rdb
	held, err := w.locks.Acquire(t.Context(), "account:42", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb) // close it after locks.Close
	cfg := asynqmw.ConfigureParking(asynq.Config{Concurrency: 10, TaskCheckInterval: 100 * time.Millisecond},
		asynqmw.Parking{Inspector: inspector})
	cfg.LogLevel = asynq.FatalLevel
	var hot sync.WaitGroup
	hot.Add(20)
	other := make(chan struct{})
	account := asynqmw.Exclusive(w.locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	w.serve(t, cfg, account(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == `{"account_id": 42}` {
			hot.Done()
		} else {
			close(other)
		}
		return nil
	})))
	for range 20 {
		w.enqueue(t, "charge", `{"account_id": 42}`)
	}
	w.enqueue(t, "charge", `{"account_id": 43}`)
	<-other
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	hot.Wait()
}

// Ticks of the page are valid, and end with their ctx.
func TestTicksOfThePage(t *testing.T) {
	client := newAsynqWorker(t).client
	ticks, err := asynqmw.NewTicks(client, asynqmw.TickOptions{},
		asynqmw.Periodic{Name: "report", Spec: "0 6 * * *", Task: asynq.NewTask("report", nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ticks.Run(ctx)
}
