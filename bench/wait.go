package main

import (
	"context"
	"time"
)

const (
	settle      = time.Second     // for waiters to come to rest before anything is counted
	enoughToSee = 3 * time.Second // who looks again every few seconds looks idle in a shorter run
)

// waitTask parks waiters behind one holder and measures what their waiting costs.
type waitTask struct {
	job    job
	locker locker
	cancel context.CancelFunc
	bytes  float64
}

// warmUp starts the waiters in two steps: what goroutines cost that do nothing is not the library's.
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
					<-ctx.Done() // the first holder's lock ran out, it has no watchdog: this one takes over
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
