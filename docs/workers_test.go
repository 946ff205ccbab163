package docs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// openLocks is a placeholder for code that main runs once.
func openLocks() (*lockcore.Locker, func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		panic(err)
	}
	return locks, func() {
		_ = locks.Close(context.Background())
		_ = rdb.Close()
		m.Close()
	}
}

type transfer struct{ account, amount int }

// work is one worker of a pool. While it books a transfer, no other worker books one of the same
// account. done gets the error of each transfer. Put back a transfer that did not run
// (lockcore.ErrNotRun).
func work(ctx context.Context, locks *lockcore.Locker, jobs <-chan transfer, book func(context.Context, transfer) error, done func(transfer, error)) {
	terms := lockcore.Terms{Name: "account", Wait: time.Minute}
	for job := range jobs {
		done(job, guard.Exclusive(ctx, locks, fmt.Sprint("account:", job.account), terms, func(ctx context.Context) error { return book(ctx, job) }))
	}
}

func Example_pool() {
	locks, done := openLocks()
	defer done()
	var mu sync.Mutex
	inside, most, booked := map[int]int{}, 0, 0
	book := func(_ context.Context, t transfer) error {
		mu.Lock()
		inside[t.account]++
		most, booked = max(most, inside[t.account]), booked+t.amount
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		inside[t.account]--
		mu.Unlock()
		return nil
	}
	jobs := make(chan transfer)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			work(context.Background(), locks, jobs, book, func(_ transfer, err error) {
				if err != nil {
					fmt.Println(err)
				}
			})
		})
	}
	for i := range 40 {
		jobs <- transfer{account: i % 3, amount: 1}
	}
	close(jobs)
	workers.Wait()
	fmt.Println("booked:", booked, "at most at once on one account:", most)
	// Output: booked: 40 at most at once on one account: 1
}

// move books a transfer while it holds both accounts.
func move(ctx context.Context, locks *lockcore.Locker, from, to int, book func(context.Context) error) error {
	keys := []string{fmt.Sprint("account:", from), fmt.Sprint("account:", to)}
	return guard.ExclusiveAll(ctx, locks, keys, lockcore.Terms{Name: "account", Wait: time.Minute}, book)
}

// callPartner runs send while at most 3 calls of the partner run, in all processes.
func callPartner(ctx context.Context, locks *lockcore.Locker, partner string, send func(context.Context) error) error {
	return guard.Limited(ctx, locks, "partner:"+partner, 3, lockcore.Terms{Name: "partner", Wait: time.Minute}, send)
}

// reports runs at most 3 tasks of the type at a time, on all workers together.
func reports(mux *asynq.ServeMux, locks *lockcore.Locker, handler asynq.Handler) {
	mux.Handle("report", asynqmw.Limited(locks, asynqmw.ByType(), 3, asynqmw.LimitedOptions{})(handler))
}

func Example_atMostN() {
	locks, done := openLocks()
	defer done()
	var running, most atomic.Int64
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			err := callPartner(context.Background(), locks, "acme", func(context.Context) error {
				now := running.Add(1)
				for m := most.Load(); m < now && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				running.Add(-1)
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	calls.Wait()
	mux := asynq.NewServeMux()
	reports(mux, locks, asynq.NotFoundHandler())
	fmt.Println("more than 3:", most.Load() > 3)
	// Output: more than 3: false
}

func Example_severalKeys() {
	locks, done := openLocks()
	defer done()
	balance := map[int]int{1: 100, 2: 100}
	var transfers sync.WaitGroup
	for i := range 20 {
		from, to := 1+i%2, 2-i%2
		transfers.Go(func() {
			err := move(context.Background(), locks, from, to, func(context.Context) error {
				balance[from] -= from
				balance[to] += from
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	transfers.Wait()
	fmt.Println(balance)
	// Output: map[1:110 2:90]
}

// message is a message that a broker delivers at least once.
type message struct {
	id, body string
}

// consume runs each message once, however often the broker delivers it, and says whether to acknowledge it.
func consume(ctx context.Context, locks *lockcore.Locker, m message, handle func(context.Context, message) error, dead func(message, error)) (ack bool) {
	o := guard.OnceOptions{
		Terms: lockcore.Terms{Name: "order-created"}, Keep: 8 * 24 * time.Hour, // longer than the topic's retention, which is 7 days
		Fingerprint: idempotency.Fingerprint(nil, []byte(m.body)),
	}
	_, err := guard.Once(ctx, locks, "order-created:"+m.id, o, func(ctx context.Context) error { return handle(ctx, m) })
	switch {
	case errors.Is(err, lockcore.ErrMismatch), errors.Is(err, lockcore.ErrRecord), errors.Is(err, lockcore.ErrKey):
		dead(m, err) // a redelivery would fail again: the same ID with another body, a record that does not decode, or no usable ID
		return true
	default:
		var recorded *guard.RecordedError
		return err == nil || errors.As(err, &recorded) // done, now or before. Any other message is delivered again
	}
}

func Example_consumer() {
	locks, done := openLocks()
	defer done()
	runs := 0
	handle := func(_ context.Context, m message) error {
		runs++
		if runs == 1 {
			return errors.New("the database is away")
		}
		fmt.Println("handled", m.id)
		return nil
	}
	dead := func(_ message, err error) { fmt.Println("dead letter:", err) }
	for range 4 { // until it is acknowledged, and then twice more
		fmt.Println("ack:", consume(context.Background(), locks, message{"7", "{}"}, handle, dead))
	}
	fmt.Println("ack:", consume(context.Background(), locks, message{"7", "{other}"}, handle, dead))
	fmt.Println("runs:", runs)
	// Output:
	// ack: false
	// handled 7
	// ack: true
	// ack: true
	// ack: true
	// dead letter: lockcore: "order-created:7" is done with another fingerprint
	// ack: true
	// runs: 2
}
