package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	acquirers   = 64               // goroutines that acquire and release the keys
	patience    = 5 * time.Second  // for the next key; then the rest is given up
	memoryLease = 30 * time.Minute // so that no lease is renewed or expires in a run
	perKey      = time.Millisecond // a child may take this long for a key
	settleEvery = 250 * time.Millisecond
	settleReads = 6 // consecutive reads that differ by at most settleBytes
	settleMost  = 20 * time.Second
	settleBytes = 4 << 10
)

var errNoLease = errors.New("bench: no lease was granted")

// memoryTask acquires all keys when the window opens, and releases them when it gets the word
// giveBack.
type memoryTask struct {
	job    job
	locker locker
	leases []held
	taken  int
	extra  figures
}

// warmUp opens the connections and loads the scripts, so that neither counts as memory of a key.
func (t *memoryTask) warmUp() error {
	t.leases = make([]held, t.job.Point.Workers)
	if t.take("before", 10*acquirers, func(_ int, h held) { _ = h.unlock(context.Background()) }) == 0 {
		return errNoLease
	}
	return nil
}

func (t *memoryTask) open() error {
	before := readUsage()
	t.taken = t.take("", len(t.leases), func(k int, h held) { t.leases[k] = h })
	if t.taken == 0 {
		return errNoLease
	}
	t.extra = readUsage().since(before, t.taken)
	return nil
}

// take locks n different keys with several goroutines, and returns how many it got. No other caller
// uses these keys. Nevertheless rueidislock may hang: if the reply to its SET takes more than 20
// ms, it waits for a message that no client sends (NoLoopTracking). A separate ctx with a deadline
// for each key would prevent that, but would count as memory of every lease.
func (t *memoryTask) take(name string, n int, got func(int, held)) int {
	var next, taken atomic.Int64
	for range acquirers {
		go func() { // ends when all are acquired, or hangs in its library until the process ends
			for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
				h, err := t.locker.lock(context.Background(), fmt.Sprintf("%s%s%d", t.job.Prefix, name, k))
				if err == nil {
					got(k, h)
					taken.Add(1)
				}
			}
		}()
	}
	last, since := int64(0), time.Now()
	for last < int64(n) && time.Since(since) < patience {
		time.Sleep(5 * time.Millisecond)
		if now := taken.Load(); now > last {
			last, since = now, time.Now()
		}
	}
	return int(last)
}

func (t *memoryTask) giveBack() error {
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range acquirers {
		all.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(t.leases); k = int(next.Add(1)) - 1 {
				if h := t.leases[k]; h != nil && h.unlock(context.Background()) != nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("bench: %d releases failed", n)
	}
	return nil
}

func (t *memoryTask) close() {}

func (t *memoryTask) collect(o *outcome) {
	o.Unserved = int64(len(t.leases) - t.taken)
	maps.Copy(o.Extra, t.extra)
	runtime.KeepAlive(t.locker) // its connections stay open until the parent has read the memory
}

// runMemory reads the memory of Redis before the keys are acquired, while they are held and after
// their release. The memory of connections does not count, because Redis resizes their buffers every
// few seconds.
func (r *result) runMemory(ctx context.Context, srv *server, cs children, p point) error {
	var states []state
	for _, word := range []string{warmUp, measure, giveBack} {
		if _, err := cs.all(ctx, word, answerTime+time.Duration(p.Workers)*perKey); err != nil {
			return err
		}
		now, err := srv.settled(ctx)
		if err != nil {
			return err
		}
		states = append(states, now)
	}
	outcomes, err := cs.all(ctx, finish, answerTime)
	if err != nil {
		return err
	}
	before, during, after := states[0], states[1], states[2]
	r.figures = outcomes[0].Extra
	r.figures[unserved] = float64(outcomes[0].Unserved)
	r.figures[bytesPerKey] = (during.used - before.used) / (float64(p.Workers) - r.figures[unserved])
	r.figures[keysLeft] = after.keys - before.keys
	return nil
}

// state is a part of the replies to INFO and DBSIZE.
type state struct {
	used float64 // used_memory without the buffers of clients, in bytes
	keys float64
}

// settled waits until the memory no longer changes, because Redis shrinks its tables in the
// background.
func (s *server) settled(ctx context.Context) (st state, err error) {
	same := 0
	for end := time.Now().Add(settleMost); same < settleReads && time.Now().Before(end); {
		info, err := s.info(ctx, "memory")
		if err != nil {
			return st, err
		}
		all, err1 := strconv.ParseFloat(info["used_memory"], 64)
		clients, err2 := strconv.ParseFloat(info["mem_clients_normal"], 64)
		if err := errors.Join(err1, err2); err != nil {
			return st, err
		}
		used := all - clients
		if same++; used < st.used-settleBytes || used > st.used+settleBytes {
			same, st.used = 0, used
		}
		if err := sleep(ctx, settleEvery); err != nil {
			return st, err
		}
	}
	keys, err := s.admin.DBSize(ctx).Result()
	st.keys = float64(keys)
	return st, err
}
