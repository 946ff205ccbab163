package main

import (
	"runtime"
	"sync"
	"time"
)

const (
	lookEvery = 10 * time.Millisecond
	tooLate   = 250 * time.Millisecond // a longer delay makes a failure inconclusive
)

// standstill records the times at which the machine did not run. That happens to a virtual machine when its host runs
// others. A failure during such a time is inconclusive, because leases and limits are in wall-clock time.
type standstill struct {
	mu   sync.Mutex
	gaps []gap
}

type gap struct {
	from time.Time
	took time.Duration
}

// watch starts as many threads as there are processors, because a host may stop only one processor. The threads end
// with the process.
func (s *standstill) watch() {
	for range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			for last := time.Now(); ; {
				time.Sleep(lookEvery)
				now := time.Now()
				s.saw(last, now)
				last = now
			}
		}()
	}
}

// saw records a gap if two consecutive readings are too far apart.
func (s *standstill) saw(last, now time.Time) {
	if took := now.Sub(last); took > tooLate {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gaps = append(s.gaps, gap{last, took})
	}
}

// longest returns the longest standstill that overlaps a span of time, or 0.
func (s *standstill) longest(from, to time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gaps {
		if g.from.Before(to) && g.from.Add(g.took).After(from) {
			d = max(d, g.took)
		}
	}
	return d
}
