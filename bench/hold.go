package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

const (
	acquirers    = 64               // goroutines that take the leases, or open the connections
	setupTimeout = 60 * time.Second // of taking them
)

var errLate = errors.New("bench: the leases could not be taken within a minute")

// holdTask keeps leases and measures what that costs.
type holdTask struct {
	job     job
	locker  locker
	witness *witness
	passes  *passes
	leases  []held
	extra   figures
}

// warmUp takes the leases. Before that it opens the connections that this needs, so that they do not count as memory.
// The leases live under ctx: it has no deadline, and is canceled only if this fails.
func (t *holdTask) warmUp() error {
	ctx, cancel := context.WithCancel(context.Background())
	late := time.AfterFunc(setupTimeout, cancel)
	n := t.job.Point.Workers
	t.leases = make([]held, n)
	err := t.take(ctx, "before", make([]held, acquirers), true)
	before := readMemory()
	if err == nil {
		err = t.take(ctx, "", t.leases, false)
	}
	if err != nil || !late.Stop() {
		cancel()
		return cmp.Or(err, errLate)
	}
	t.extra = readMemory().since(before, n)
	t.passes.seen()
	return nil
}

// take locks a key for each of into, by several goroutines.
func (t *holdTask) take(ctx context.Context, name string, into []held, giveBack bool) error {
	errs := make([]error, acquirers)
	var wg sync.WaitGroup
	for i := range acquirers {
		wg.Go(func() {
			for k := i; k < len(into) && errs[i] == nil; k += acquirers {
				into[k], errs[i] = t.locker.lock(ctx, fmt.Sprintf("%s%s%d", t.job.Prefix, name, k))
				if errs[i] == nil && giveBack {
					errs[i] = into[k].unlock(ctx)
				} else if errs[i] == nil {
					t.witness.enter(k)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("bench: %s: %w", t.job.Library, err)
		}
	}
	return nil
}

func (t *holdTask) open()  {}
func (t *holdTask) close() {}

func (t *holdTask) collect(o *outcome) {
	per := float64(len(t.leases)) * o.Window.Seconds()
	t.extra[cmdsPerLeaseS] = float64(o.Commands) / per
	t.extra[tripsPerLeaseS] = float64(o.Trips) / per
	if longest, renewed, lost := t.passes.seen(); renewed > 0 {
		t.extra[longestPassMS] = longest.Seconds() * 1e3
		t.extra[renewalsSeen] = float64(renewed)
		t.extra[leasesLost] = float64(lost)
	}
	o.Violations = t.witness.violations.Load()
	o.Extra = t.extra
	runtime.KeepAlive(t.leases)
}

// memory is what lives now.
type memory struct {
	heap, stacks uint64
	goroutines   int
}

func readMemory() memory {
	time.Sleep(100 * time.Millisecond) // for goroutines that are about to end
	runtime.GC()
	runtime.GC() // the second frees what sync.Pools kept over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()}
}

// since counts stacks too: a goroutine for each lease is memory for each lease.
func (m memory) since(before memory, leases int) figures {
	bytes := float64(m.heap) + float64(m.stacks) - float64(before.heap) - float64(before.stacks)
	return figures{
		goroutinesPerLease: float64(m.goroutines-before.goroutines) / float64(leases),
		bytesPerLease:      max(bytes, 0) / float64(leases),
	}
}
