package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	acquirers = 64              // goroutines that acquire the leases, or open the connections
	patience  = 5 * time.Second // for the next lease; then the rest is given up
)

var errNoLease = errors.New("bench: no lease was granted")

// holdTask holds leases and measures the cost.
type holdTask struct {
	job     job
	locker  locker
	witness *witness
	passes  *passes
	leases  []held
	taken   int
	extra   figures
}

// warmUp acquires the leases. It first opens the necessary connections, so that they do not count
// as memory.
func (t *holdTask) warmUp() error {
	t.leases = make([]held, t.job.Point.Workers)
	t.take("before", acquirers, func(_ int, h held) { _ = h.unlock(context.Background()) })
	before := readMemory()
	t.taken = t.take("", len(t.leases), func(k int, h held) {
		t.leases[k] = h
		t.witness.enter(k, 0)
	})
	if t.taken == 0 {
		return errNoLease
	}
	t.extra = readMemory().since(before, t.taken)
	t.passes.seen()
	return nil
}

// take locks n different keys with several goroutines, and returns how many it got. No other caller
// uses these keys. Nevertheless rueidislock may hang: if the reply to its SET takes more than 20
// ms, it waits for a message that no client sends (NoLoopTracking). A separate ctx with a deadline
// for each key would prevent that, but would count as memory of every lease.
func (t *holdTask) take(name string, n int, got func(int, held)) int {
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

func (t *holdTask) open()  {}
func (t *holdTask) close() {}

func (t *holdTask) collect(o *outcome) {
	per := float64(t.taken) * o.Window.Seconds()
	t.extra[cmdsPerLeaseS] = float64(o.Commands) / per
	t.extra[tripsPerLeaseS] = float64(o.Trips) / per
	if longest, renewed, lost := t.passes.seen(); renewed > 0 {
		t.extra[longestPassMS] = longest.Seconds() * 1e3
		t.extra[renewalsSeen] = float64(renewed)
		t.extra[leasesLost] = float64(lost)
	}
	o.Unserved = int64(len(t.leases) - t.taken)
	o.Violations = t.witness.violations.Load()
	o.Extra = t.extra
	runtime.KeepAlive(t.leases)
}

// memory is the memory and the goroutines in use.
type memory struct {
	heap, stacks uint64
	goroutines   int
}

func readMemory() memory {
	time.Sleep(100 * time.Millisecond) // for goroutines that are about to end
	runtime.GC()
	runtime.GC() // the second run frees the data that sync.Pools kept during the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()}
}

// since also counts stacks, because a library with a goroutine for each lease needs a stack for
// each.
func (m memory) since(before memory, leases int) figures {
	bytes := float64(m.heap) + float64(m.stacks) - float64(before.heap) - float64(before.stacks)
	return figures{
		goroutinesPerLease: float64(m.goroutines-before.goroutines) / float64(leases),
		bytesPerLease:      max(bytes, 0) / float64(leases),
	}
}
