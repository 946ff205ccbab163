package main

import (
	"context"
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

// warmUp starts the waiters in two steps. First it starts goroutines that do nothing, because their
// cost is not a cost of the library.
func (t *waitTask) warmUp() error {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	key := t.job.Prefix + "wait"
	if _, err := t.locker.lock(ctx, key); err != nil {
		return err
	}
	start := make(chan struct{})
	n := t.job.Point.Workers
	for range n {
		go func() { // ends when collect cancels, or with the process
			<-start
			for ctx.Err() == nil {
				if _, err := t.locker.lock(ctx, key); err == nil {
					<-ctx.Done() // the lock of the first holder expired, because it has no watchdog: this waiter takes over
				}
			}
		}()
	}
	before := readMemory()
	close(start)
	time.Sleep(settle)
	t.bytes = max(float64(readMemory().heap)-float64(before.heap), 0) / float64(n)
	return nil
}

func (t *waitTask) open()  {}
func (t *waitTask) close() {}

func (t *waitTask) collect(o *outcome) {
	t.cancel()
	o.Extra = figures{bytesPerWaiter: t.bytes}
	if o.Window >= enoughToSee {
		perS := float64(o.Commands) / o.Window.Seconds()
		o.Extra[cmdsPerProcessS] = perS
		o.Extra[cmdsPerWaiterS] = perS / float64(t.job.Point.Workers)
	}
}
