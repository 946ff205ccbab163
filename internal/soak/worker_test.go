package soak_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/lockcore"
)

// task is the task of a worker process. report is the data that it writes at its end.
type (
	task struct {
		Name, Addr            string
		For, Lease            time.Duration
		Goroutines, Hot, Keys int
		Together              int  // number of processes that begin at the same time
		Shares                bool // the worker calls for shares, see shares_worker_test.go
	}
	report struct {
		Acquired    map[string]int // by key
		Hot         int            // of them, the hot key
		HandedOver  int            // of them, from another call of the same process
		Abandoned   int            // of them, after a holder that died
		Refused     int            // calls that did not wait
		Gone        int            // waits that were canceled, as planned
		LongestMS   int64          // wait
		Lost        int            // holds that a fault ended
		Unavailable int            // calls that a fault ended
		Errors      []string
	}
)

const hotKey = "hot"

// worker is one process of the soak.
type worker struct {
	task
	rdb   *redis.Client
	locks *lockcore.Locker
	end   time.Time

	mu  sync.Mutex
	out report

	ids atomic.Int64 // of holds that were reported to the parent
}

func work(t task, _ *bufio.Scanner) (err error) {
	w := &worker{task: t, rdb: redis.NewClient(&redis.Options{Addr: t.Addr}), out: report{Acquired: map[string]int{}}}
	if w.locks, err = lockcore.New(w.rdb, lockcore.Options{Terms: lockcore.Terms{Lease: w.Lease}}); err != nil {
		return err
	}
	if w.Shares {
		w.shares()
		return nil
	}
	w.meet()
	var wg sync.WaitGroup
	for range w.Goroutines {
		wg.Go(func() { w.run(w.anyCall) })
	}
	for range w.Hot {
		wg.Go(func() { w.run(w.hotCall) })
	}
	wg.Wait()
	w.fail("close", w.locks.Close(context.Background()))
	w.fail("close", w.rdb.Close())
	w.fail("goroutines left", goleak.Find())
	chaos.WriteLine(os.Stdout, w.out)
	return nil
}

// meet waits until all processes that begin together are ready.
func (w *worker) meet() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	here, err := w.rdb.Incr(ctx, "here").Result()
	for err == nil && here < int64(w.Together) {
		time.Sleep(time.Millisecond)
		here, err = w.rdb.Get(ctx, "here").Int64()
	}
	w.fail("start", err)
	w.end = time.Now().Add(w.For)
}

func (w *worker) run(call func(context.Context)) {
	for time.Now().Before(w.end) {
		ctx, cancel := context.WithDeadline(context.Background(), w.end.Add(20*time.Second)) // a call that still waits then is stuck
		call(ctx)
		cancel()
	}
}

// hotCall makes the call that is the same in all processes.
func (w *worker) hotCall(ctx context.Context) {
	w.turn(ctx, hotKey, lockcore.Terms{Wait: lockcore.Forever})
}

// anyCall makes a call, mostly with equal terms. A tenth of the waits are canceled.
func (w *worker) anyCall(ctx context.Context) {
	terms := lockcore.Terms{Wait: lockcore.Forever}
	switch rand.IntN(40) {
	case 0, 1:
		terms.Wait = lockcore.NoWait
	case 2:
		terms.Lease = 2 * lease
	case 3:
		terms.NoRenew = true
	case 4:
		terms.MaxHold = time.Minute
	case 5, 6, 7, 8:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, rand.N(20*time.Millisecond), context.Canceled)
		defer cancel()
	}
	w.turn(ctx, "soak"+strconv.Itoa(rand.IntN(w.Keys)), terms)
}

// turn acquires key and does work that only one holder may do at a time.
func (w *worker) turn(ctx context.Context, key string, terms lockcore.Terms) {
	start := time.Now()
	le, err := w.locks.Acquire(ctx, key, terms)
	waited := time.Since(start).Milliseconds()
	w.note(func(r *report) { r.LongestMS = max(r.LongestMS, waited) })
	switch {
	case err != nil && errors.Is(context.Cause(ctx), context.Canceled):
		w.note(func(r *report) { r.Gone++ })
		return
	case errors.Is(err, lockcore.ErrBusy) && terms.Wait == lockcore.NoWait:
		w.note(func(r *report) { r.Refused++ })
		return
	case err != nil:
		w.fail("acquire", err)
		return
	}
	handed, err := w.count(key, le.Token())
	w.fail("count", err)
	w.fail("release", le.Release(ctx))
	if le.Abandoned() {
		w.note(func(r *report) { r.Abandoned++ })
	}
	if handed {
		w.note(func(r *report) { r.HandedOver++ })
	}
}

// count is the oracle. It reads, increments and writes back a counter in three steps, so the
// counter loses an increment if two holders are inside at once. The tokens must grow from holder to
// holder. The count of this process is written too, in case the process is killed. A token that
// follows the one before belongs to a hand-off, because tokens of new grants are times.
func (w *worker) count(key string, token int64) (handed bool, err error) {
	ctx := context.Background()
	v, err := w.rdb.MGet(ctx, "count:"+key, "token:"+key).Result()
	if err != nil {
		return false, err
	}
	n, last := number(v[0]), number(v[1])
	if token <= last {
		return false, fmt.Errorf("token %d of %s after %d", token, key, last)
	}
	own := 0
	w.note(func(r *report) {
		r.Acquired[key]++
		own = r.Acquired[key]
		if key == hotKey {
			r.Hot++
		}
	})
	return token == last+1, w.rdb.MSet(ctx, "count:"+key, n+1, "token:"+key, token, "by:"+w.Name+":"+key, own).Err()
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (w *worker) note(what func(*report)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what(&w.out)
}

func (w *worker) fail(what string, err error) {
	if err == nil {
		return
	}
	w.note(func(r *report) {
		if len(r.Errors) < 10 {
			r.Errors = append(r.Errors, what+": "+err.Error())
		}
	})
}
