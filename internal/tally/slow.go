package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookEvery = 10 * time.Millisecond
	tooLate   = 250 * time.Millisecond // a sleep that ends later makes a failure inconclusive

	workEvery = 250 * time.Millisecond
	workSteps = 4_000_000 // about 5 ms of one processor
	tooLong   = 50 * time.Millisecond
)

// slowness records the times at which the machine stopped or was too slow. That happens to a
// virtual machine when its host runs others. A failure during such a time is inconclusive, because
// leases and limits are in wall-clock time.
type slowness struct {
	mu    sync.Mutex
	spans []span
}

type span struct {
	from, to time.Time
	late     time.Duration // of a sleep, or of a piece of work
}

// watch starts as many threads as there are processors, because a host may stop only one processor.
// The threads end with the process.
func (s *slowness) watch() {
	for range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			last := time.Now()
			for worked := last; ; {
				time.Sleep(lookEvery)
				now := time.Now()
				s.slept(last, now)
				last = now
				if now.Sub(worked) >= workEvery {
					work()
					last = time.Now()
					s.worked(worked, now, last)
					worked = last
				}
			}
		}()
	}
}

// slept records a sleep that took too long.
func (s *slowness) slept(from, to time.Time) {
	if late := to.Sub(from); late > tooLate {
		s.add(span{from, to, late})
	}
}

// worked records a piece of work that took too long. It counts for all the time since last, the end
// of the previous piece of work.
func (s *slowness) worked(last, from, to time.Time) {
	if late := to.Sub(from); late > tooLong {
		s.add(span{last, to, late})
	}
}

func (s *slowness) add(sp span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans = append(s.spans, sp)
}

// longest returns the longest delay in a span of time, or 0.
func (s *slowness) longest(from, to time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.spans {
		if sp.from.Before(to) && sp.to.After(from) {
			d = max(d, sp.late)
		}
	}
	return d
}

var sink atomic.Uint64 // keeps the compiler from removing the work

// work needs the same time on most processors: each step waits for the previous one.
func work() {
	x := uint64(time.Now().UnixNano())
	for range workSteps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}
