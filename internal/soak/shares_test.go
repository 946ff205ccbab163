package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	sharingProcs = 8                      // processes of the soak of shares
	recovery     = 250 * time.Millisecond // after the lease of a dead holder
	faults       = 3                      // that are under way at the same time
)

// Processes share a few keys. Each process is behind a proxy that can fall silent. Some are stopped
// for a while, and some are killed. Limits change meanwhile. The parent judges the holds, see
// shareProblems. The permits of a killed process are free within its lease and 250 ms, and at the
// end none is lost and none is added.
func TestSoakShares(t *testing.T) {
	testlevel.Campaign(t)
	s := &sharing{T: t, server: redistest.Real(t), control: redistest.NewControl(t), end: time.Now().Add(*sharesFor)}
	for range 2 {
		s.locks = append(s.locks, chaos.Locker(t, s.server.Client(t), lockcore.Options{Terms: lockcore.Terms{Lease: shareLease}}))
	}
	slots := make([]*slot, sharingProcs)
	for i := range slots {
		slots[i] = &slot{sharing: s, n: i, link: redistest.Proxy(t, s.server.Addr())}
		slots[i].start()
	}
	s.disturb(slots)
	for _, p := range slots {
		if <-p.Ended; !p.reported {
			t.Errorf("%s ended without a report: %v", p.name, p.Err)
		}
	}
	s.judge()
	s.count()
}

// sharing is the soak of shares, as the parent sees it.
type sharing struct {
	*testing.T
	server  *redistest.Server
	control *redistest.Control
	locks   []*lockcore.Locker // of the parent, without a proxy
	end     time.Time

	mu                             sync.Mutex
	holds                          []*inside
	reports                        []report
	kills, pauses, holes, unjudged int
	freed                          []time.Duration // from the kill of a holder to the grant of its permits
}

// slot is a process, or its successor after it was killed.
type slot struct {
	*sharing
	*chaos.Process
	n, generation int
	link          *redistest.Relay
	name          string
	reported      bool // the process, guarded by sharing.mu until it has ended
}

// start starts the next process, and records what it reports until it ends.
func (p *slot) start() {
	p.name, p.reported = fmt.Sprintf("w%d.%d", p.n, p.generation), false
	p.generation++
	t := task{Name: p.name, Addr: "127.0.0.1:" + p.link.Port(), For: time.Until(p.end), Lease: shareLease, Shares: true}
	byID := map[int64]*inside{}
	p.Process = chaos.Start(p, t, func(_ *chaos.Process, l line) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case l.Report != nil:
			p.reports, p.reported = append(p.reports, *l.Report), true
		case l.Hold != nil:
			h := l.Hold
			h.proc, h.Valid = t.Name, h.Seen
			byID[l.ID], p.holds = h, append(p.holds, h)
		case byID[l.ID] != nil:
			byID[l.ID].Valid = l.Valid
		}
	})
}

// disturb kills, stops and cuts off processes, a few at the same time, until two leases before the
// end.
func (s *sharing) disturb(slots []*slot) {
	until := s.end.Add(-2 * shareLease)
	idle, turns := make(chan *slot, len(slots)), make(chan struct{}, faults)
	rand.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	for _, p := range slots {
		idle <- p
	}
	var wg sync.WaitGroup
	time.Sleep(shareLease / 3) // the first calls
	for time.Now().Before(until) {
		turns <- struct{}{}
		p := <-idle
		wg.Go(func() {
			p.fault(until)
			time.Sleep(rand.N(shareLease / 3))
			idle <- p
			<-turns
		})
	}
	wg.Wait()
}

// fault causes one fault of the process. A fault that lasts ends at until at the latest.
func (p *slot) fault(until time.Time) {
	d := min(shareLease/10+rand.N(2*shareLease), time.Until(until))
	switch rand.IntN(4) {
	case 0, 1:
		p.kill()
	case 2:
		p.Pause()
		time.Sleep(d)
		p.Resume()
		p.add(&p.pauses)
	default:
		p.link.Silence()
		time.Sleep(d)
		p.link.Heal()
		p.add(&p.holes)
	}
}

func (s *sharing) add(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// kill kills the process while the parent waits for the permits of the key of its name, and starts
// the next one.
func (p *slot) kill() {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	p.await(ctx, func(h lockcore.Holding) bool { return len(h.Shares) == minLimit-1 })
	granted := make(chan time.Time, 1)
	go func() {
		terms := lockcore.Terms{Wait: lockcore.Forever, Limit: minLimit, Weight: minLimit}
		le, err := p.locks[0].Acquire(ctx, p.name, terms)
		granted <- time.Now()
		if err == nil {
			err = le.Release(ctx)
		}
		if err != nil {
			p.Errorf("the permits of %s: %v", p.name, err)
		}
	}()
	p.await(ctx, func(h lockcore.Holding) bool { return h.Queue > 0 || len(granted) > 0 })
	time.Sleep(rand.N(shareLease / 3)) // at any moment between two renewals
	died := time.Now()
	p.Kill()
	free := (<-granted).Sub(died)
	late := p.control.Late(died)
	p.mu.Lock()
	p.kills++
	switch {
	case free < 0: // an earlier fault had taken the lease
		p.unjudged++
	case free > shareLease+recovery+late:
		p.Errorf("the permits of %s are free %v after its death (machine late by %v)", p.name, free, late)
		fallthrough
	default:
		p.freed = append(p.freed, free)
	}
	p.mu.Unlock()
	p.start()
}

// await waits until ok accepts the state of the process's own key.
func (p *slot) await(ctx context.Context, ok func(lockcore.Holding) bool) {
	if !chaos.Within(time.Minute, func() bool {
		h, err := p.locks[1].Inspect(ctx, lockcore.KindExclusive, p.name)
		return err == nil && ok(h)
	}) {
		p.Errorf("the permits of %s: not in a minute", p.name)
	}
}

// judge checks the holds of each key against the rules, and logs the reports of the workers.
func (s *sharing) judge() {
	s.Helper()
	var sum report
	for _, r := range s.reports {
		for _, e := range r.Errors {
			s.Errorf("worker: %s", e)
		}
		sum.Refused += r.Refused
		sum.Gone += r.Gone
		sum.Lost += r.Lost
		sum.Unavailable += r.Unavailable
		sum.LongestMS = max(sum.LongestMS, r.LongestMS)
	}
	bad := shareProblems(s.holds)
	for _, b := range bad[:min(len(bad), 20)] {
		s.Error(b)
	}
	kinds := map[string]int{}
	for _, h := range s.holds {
		kinds[[]string{"shared", "exclusive", "limited"}[min(h.Limit, 1)+1]]++
	}
	slices.Sort(s.freed)
	var most, p99 time.Duration
	if n := len(s.freed); n > 0 {
		most, p99 = s.freed[n-1], s.freed[(n*99+99)/100-1]
	}
	s.Logf("soak of shares: %v, %d processes: %d holds %v, %d violations, %d kills, %d pauses, %d black holes; permits of the dead free after at most %v, p99 %v (%d kills, %d more had lost their lease before); %d holds lost, %d calls unavailable, %d refused, %d waits canceled, longest wait %d ms",
		*sharesFor, sharingProcs, len(s.holds), kinds, len(bad), s.kills, s.pauses, s.holes, most, p99, len(s.freed), s.unjudged,
		sum.Lost, sum.Unavailable, sum.Refused, sum.Gone, sum.LongestMS)
	if len(kinds) < 3 || *sharesFor >= everyFault && (len(s.freed) == 0 || s.pauses == 0 || s.holes == 0) || *sharesFor >= someLost && sum.Lost == 0 {
		s.Error("inconclusive")
	}
}

const (
	everyFault = 20 * time.Second // a run as long as this has every fault
	someLost   = time.Minute      // in a run as long as this a fault lasts longer than a lease that is held
)

// count checks that each key has as many permits as its limit, and that nothing is left behind.
func (s *sharing) count() {
	ctx := s.Context()
	for _, key := range shareKeys {
		var leases []*lockcore.Lease
		for i := range minLimit {
			le, err := s.locks[i%2].Acquire(ctx, key, lockcore.Terms{Wait: lockcore.NoWait, Limit: minLimit})
			if err != nil {
				s.Errorf("permit %d of %d of %s: %v", i+1, minLimit, key, err)
				continue
			}
			leases = append(leases, le)
		}
		for _, limit := range []int{minLimit, 0} {
			if _, err := s.locks[1].Acquire(ctx, key, lockcore.Terms{Wait: lockcore.NoWait, Limit: limit}); !errors.Is(err, lockcore.ErrBusy) {
				s.Errorf("%s beside %d permits, with limit %d: %v, want ErrBusy", key, minLimit, limit, err)
			}
		}
		for _, le := range leases {
			if err := le.Release(ctx); err != nil {
				s.Errorf("%s: %v", key, err)
			}
		}
	}
	for _, locks := range s.locks {
		if err := locks.Close(ctx); err != nil {
			s.Error(err)
		}
	}
	(&run{T: s.T, server: s.server}).checkLeftovers()
}
