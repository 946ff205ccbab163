package main

import (
	"context"
	"runtime"
	"time"
)

const (
	settle      = time.Second     // until waiters are idle
	enoughToSee = 3 * time.Second // a library that polls every few seconds looks idle in a shorter run
)

// waitTask has one holder and many waiters, and measures the cost of the wait.
type waitTask struct {
	job    job
	locker locker
	cancel context.CancelFunc
	bytes  float64
}

// warmUp starts one waiter, which opens the connections that all of them share, and then the others.
// Their goroutines exist before, because these are not a cost of the library.
func (t *waitTask) warmUp() error {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	key := t.job.Prefix + "wait"
	if _, err := t.locker.lock(ctx, key); err != nil {
		return err
	}
	waits := func() { // ends when collect cancels, or with the process
		for ctx.Err() == nil {
			if _, err := t.locker.lock(ctx, key); err == nil {
				<-ctx.Done() // the lock of the first holder expired, because it has no watchdog: this waiter takes over
			}
		}
	}
	go waits()
	start := make(chan struct{})
	n := t.job.Point.Workers - 1
	for range n {
		go func() { <-start; waits() }()
	}
	time.Sleep(settle)
	before := readUsage()
	close(start)
	time.Sleep(settle)
	t.bytes = max(float64(readUsage().heap)-float64(before.heap), 0) / float64(n)
	return nil
}

func (t *waitTask) open() error { return nil }
func (t *waitTask) close()      {}

func (t *waitTask) collect(o *outcome) {
	t.cancel()
	o.Extra[bytesPerWaiter] = t.bytes
	if o.Window >= enoughToSee {
		o.Extra[commandsPerS] = float64(o.Commands) / o.Window.Seconds()
	}
}

// usage is the memory and the goroutines of this process.
type usage struct {
	heap, stacks uint64
	goroutines   int
}

func readUsage() usage {
	time.Sleep(100 * time.Millisecond) // for goroutines that are about to end
	runtime.GC()
	runtime.GC() // the second run frees the data that sync.Pools kept during the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()}
}

// since also counts stacks, because a library with a goroutine for each lease needs a stack for
// each.
func (u usage) since(before usage, leases int) figures {
	bytes := float64(u.heap) + float64(u.stacks) - float64(before.heap) - float64(before.stacks)
	return figures{
		goroutinesPerLease: float64(u.goroutines-before.goroutines) / float64(leases),
		bytesPerLease:      max(bytes, 0) / float64(leases),
	}
}
