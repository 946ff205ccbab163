package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lockcore"
)

// task is what a worker process is told on its standard input, and report what it says at its end.
type (
	task struct {
		Addr             string
		For              time.Duration
		Goroutines, Keys int
	}
	report struct {
		Acquired  map[string]int // by key
		Gone      int            // waits that were canceled, as planned
		LongestMS int64          // wait
		Errors    []string
	}
)

// worker is one process of the soak.
type worker struct {
	task
	rdb   *redis.Client
	locks *lockcore.Locker
	end   time.Time

	mu  sync.Mutex
	out report
}

func work() int {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := &worker{task: t, rdb: redis.NewClient(&redis.Options{Addr: t.Addr}), end: time.Now().Add(t.For)}
	w.out.Acquired = map[string]int{}
	var err error
	if w.locks, err = lockcore.New(w.rdb, lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var wg sync.WaitGroup
	for range t.Goroutines {
		wg.Go(w.run)
	}
	wg.Wait()
	w.fail("close", w.locks.Close(context.Background()))
	w.fail("close", w.rdb.Close())
	w.fail("goroutines left", goleak.Find())
	if err := json.NewEncoder(os.Stdout).Encode(w.out); err != nil {
		return 1
	}
	return 0
}

func (w *worker) run() {
	for time.Now().Before(w.end) {
		key := "soak" + strconv.Itoa(rand.IntN(w.Keys))
		ctx, cancel := context.WithDeadline(context.Background(), w.end.Add(20*time.Second)) // who is still in line then is stuck
		if rand.IntN(10) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(20000))*time.Microsecond, cancel)
		}
		w.turn(ctx, key)
		cancel()
	}
}

// turn acquires key and does what only one at a time may do.
func (w *worker) turn(ctx context.Context, key string) {
	start := time.Now()
	lease, err := w.locks.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever})
	waited := time.Since(start).Milliseconds()
	w.mu.Lock()
	w.out.LongestMS = max(w.out.LongestMS, waited)
	w.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		w.mu.Lock()
		w.out.Gone++
		w.mu.Unlock()
		return
	}
	if err != nil {
		w.fail("acquire", err)
		return
	}
	err = w.count(key, lease.Token())
	w.fail("release", lease.Release(ctx))
	w.fail("count", err)
	w.mu.Lock()
	w.out.Acquired[key]++
	w.mu.Unlock()
}

// count is the oracle: a counter that is read, incremented and written back in three steps loses an increment if two are
// inside at once; the tokens must grow from holder to holder.
func (w *worker) count(key string, token int64) error {
	ctx := context.Background()
	v, err := w.rdb.MGet(ctx, "count:"+key, "token:"+key).Result()
	if err != nil {
		return err
	}
	n, last := number(v[0]), number(v[1])
	if token <= last {
		return fmt.Errorf("token %d of %s after %d", token, key, last)
	}
	return w.rdb.MSet(ctx, "count:"+key, n+1, "token:"+key, token).Err()
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (w *worker) fail(what string, err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out.Errors) < 10 {
		w.out.Errors = append(w.out.Errors, what+": "+err.Error())
	}
}
