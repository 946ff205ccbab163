package main

import (
	"runtime"
	"sync"
	"time"
)

const (
	lookEvery = 10 * time.Millisecond
	tooLate   = 250 * time.Millisecond // later than any test must bear
)

// standstill is a control: it records when this machine stood still, as a virtual machine does whose host gives the
// processor to others. A test that failed meanwhile shows nothing, because bounds and leases are in wall-clock time.
type standstill struct {
	mu   sync.Mutex
	gaps []gap
}

type gap struct {
	from time.Time
	took time.Duration
}

// watch starts a thread for each processor, because a host may take away one of them. They end with the process.
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

// saw is told of two looks in a row.
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
