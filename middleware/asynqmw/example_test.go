package asynqmw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two workers run five charges of one account, one at a time. Charges of other accounts would run
// beside them.
func ExampleExclusive() {
	rdb, stop := exampleRedis()
	defer stop()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	var now, overlaps, left atomic.Int64
	left.Store(5)
	done := make(chan struct{})
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if now.Add(1) > 1 {
			overlaps.Add(1)
		}
		time.Sleep(10 * time.Millisecond)
		now.Add(-1)
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})

	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	mux := asynq.NewServeMux()
	mux.Handle("charge", account(charge))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel}))
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()

	client := asynq.NewClientFromRedisClient(rdb)
	for range 5 {
		if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"account_id": 42}`))); err != nil {
			log.Fatal(err)
		}
	}
	<-done
	fmt.Println("charges that overlapped:", overlaps.Load())
	// Output: charges that overlapped: 0
}

// Transfers between two accounts hold both. Two opposite transfers do not wait for each other.
func ExampleExclusiveAll() {
	rdb, stop := exampleRedis()
	defer stop()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	from, to := asynqmw.ByJSON("account", "/from"), asynqmw.ByJSON("account", "/to")
	accounts := func(ctx context.Context, t *asynq.Task) ([]guard.Key, error) {
		a, err := from(ctx, t)
		if err != nil {
			return nil, err
		}
		b, err := to(ctx, t)
		return []guard.Key{a, b}, err
	}
	balance := map[string]int{"1": 100, "2": 100} // needs no mutex, because each transfer holds both accounts
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(6)
	transfer := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		var order struct{ From, To string }
		if err := json.Unmarshal(t.Payload(), &order); err != nil {
			return err
		}
		guard.MustHold(ctx, "account:"+order.From)
		guard.MustHold(ctx, "account:"+order.To)
		balance[order.From] -= 10
		balance[order.To] += 10
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})

	mux := asynq.NewServeMux()
	mux.Handle("transfer", asynqmw.ExclusiveAll(locks, accounts, asynqmw.ExclusiveOptions{})(transfer))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}))
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()

	client := asynq.NewClientFromRedisClient(rdb)
	for i := range 6 {
		payload := `{"from": "1", "to": "2"}`
		if i%3 == 2 {
			payload = `{"from": "2", "to": "1"}`
		}
		if _, err := client.Enqueue(asynq.NewTask("transfer", []byte(payload))); err != nil {
			log.Fatal(err)
		}
	}
	<-done
	fmt.Println(balance)
	// Output: map[1:80 2:120]
}

// Two tasks have the same payment. It is charged once, and both tasks end with its receipt. Once is
// inside of Exclusive, because a payment that waits for its account has not begun.
func ExampleOnce() {
	rdb, stop := exampleRedis()
	defer stop()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	charge := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		fmt.Println("charging", string(t.Payload()))
		return asynqmw.SetResult(ctx, []byte("receipt 1001"))
	})

	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{
		Fingerprint: asynqmw.Fields("/amount", "/currency"), // the same payment with another amount is refused
	})
	mux := asynq.NewServeMux()
	mux.Handle("charge", account(payment(charge)))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{LogLevel: asynq.FatalLevel}))
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()

	client := asynq.NewClientFromRedisClient(rdb)
	for _, id := range []string{"first", "second"} {
		task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42, "amount": 10, "currency": "EUR"}`))
		if _, err := client.Enqueue(task, asynq.TaskID(id), asynq.Retention(time.Hour)); err != nil {
			log.Fatal(err)
		}
	}
	for _, id := range []string{"first", "second"} {
		info := waitForTask(rdb, id)
		fmt.Printf("%s task: %v, %s\n", id, info.State, info.Result)
	}
	// Output:
	// charging {"payment_id": 7, "account_id": 42, "amount": 10, "currency": "EUR"}
	// first task: completed, receipt 1001
	// second task: completed, receipt 1001
}

// The handler passes its key to a payment provider, which charges once for it.
func ExampleKey() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	charge := payment(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		_, tookOver := guard.Attempt(ctx, asynqmw.Key(ctx))
		fmt.Println("Idempotency-Key:", asynqmw.Key(ctx), "takeover:", tookOver)
		return nil
	}))
	fmt.Println(charge.ProcessTask(context.Background(), asynq.NewTask("charge", []byte(`{"payment_id": 7}`))))
	// Output:
	// Idempotency-Key: charge/payment:7 takeover: false
	// <nil>
}

// A KeyFunc of your own. Its key is the part of the payload before the colon. A task without a
// colon runs without a guard.
func ExampleKeyFunc() {
	byTenant := func(_ context.Context, t *asynq.Task) (guard.Key, error) {
		tenant, _, found := strings.Cut(string(t.Payload()), ":")
		if !found {
			return guard.Key{}, guard.Unguarded
		}
		return guard.Key{Class: "tenant", ID: tenant}, nil
	}
	fmt.Println(byTenant(context.Background(), asynq.NewTask("report", []byte("acme:2026-01"))))
	fmt.Println(byTenant(context.Background(), asynq.NewTask("report", []byte("2026-01"))))
	// Output:
	// tenant:acme <nil>
	//  guard: run unguarded
}

// exampleRedis returns a client of a Redis in this process. In a program: redis.NewClient.
func exampleRedis() (rdb *redis.Client, stop func()) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire, as in Redis
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: m.Addr()})
	return rdb, func() {
		_ = rdb.Close()
		m.Close()
	}
}

// waitForTask waits until the task is completed.
func waitForTask(rdb *redis.Client, id string) *asynq.TaskInfo {
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for {
		info, err := inspector.GetTaskInfo("default", id)
		if err != nil {
			log.Fatal(err)
		}
		if info.State == asynq.TaskStateCompleted {
			return info
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A key of two values of the payload.
func ExampleByJSON() {
	key := asynqmw.Join(asynqmw.ByJSON("account", "/account_id"), asynqmw.ByJSON("currency", "/currency"))
	task := asynq.NewTask("charge", []byte(`{"account_id": 42, "currency": "EUR"}`))
	k, err := key(context.Background(), task)
	fmt.Println(k, err)
	fmt.Println(asynqmw.OnceKey(task.Type(), k)) // the key for locks.Clear(ctx, event.KindOnce, …)
	_, err = key(context.Background(), asynq.NewTask("charge", []byte(`{"account_id": 42}`)))
	fmt.Println(err)
	// Output:
	// account+currency:42,EUR <nil>
	// charge/account+currency:42,EUR
	// no value at "/currency"
}
