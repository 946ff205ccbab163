// Package sim simulates processes that share keys over a faulty network, for minutes of virtual
// time in a testing/synctest bubble. The Lockers, go-redis and the scripts are real; the Redis is
// in memory. The oracle judges the invariants from outside: by the results of the workers' calls
// and by the data on the server.
//
// With Config.Servers the keys are on a majority of 3 or 5 servers, which also restart: with their
// data, with older data or without. If only a minority fails at a time, the calls must go on.
//
// A seed fixes the calls of the workers and the faults of the network. It does not fix the
// scheduling of goroutines, nor the random ids and jitter of a Locker. So a seed that failed fails
// again often, but not always. For the same reason TestSim is not part of .ci/run.
//
// Violations have the numbers of the invariants in ARCHITECTURE.md:
//
//   - I1: at most one ctx per key is not canceled.
//   - I3: tokens grow.
//   - I4: a ctx is canceled before its lease ends on the server.
//   - I5: a hold whose ctx is not canceled has the key on the server.
//   - I6: a free key with waiters is taken.
//   - I8: nothing is left behind, and every key has a TTL.
//   - I9: no run of a once key is beside another one or after a record.
//   - I10: a replay equals the record.
//   - I12: calls end in their time.
//   - I13: events add up.
//   - I14: Close returns within its bound.
//   - turns: a process serves its calls in FIFO order, a batch is bounded, and another waiting
//     process is served before the next batch.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// Config configures a run. A zero field means the default.
type Config struct {
	Seed    uint64
	Minutes int // of virtual time; default 8
	Lockers int // processes; default 1, 3, 4 or 8, by the seed
	Keys    int // exclusive keys, beside the once keys; default 3
	Workers int // for exclusive keys in all processes, beside eight for once keys; default 12

	// Servers is the number of servers that vote: 3 or 5. Then there are only exclusive keys. Default 1.
	Servers int
	// Majority lets any number of the servers fail at the same time. Otherwise a minority does, and
	// the calls go on.
	Majority bool
}

// Stats counts the events of a run, so that a run with too few events does not pass.
type Stats struct {
	Virtual    time.Duration
	Grants     int // of exclusive and once keys
	HandOffs   int // grants without the server, inside a process
	Batch      int // most holds under one grant
	Cancels    int // canceled calls, at a moment when the wait queue of the key moved
	Kills      int // of processes
	Runs       int // grants of once keys
	Takeovers  int // runs that reported an abandoned one
	Replays    int
	Reentries  int
	Losses     int // leases that ended before their handlers, by any cause
	Shares     int // grants of shares
	Beside     int // most holds beside a share
	Faults     int // faults that hit something
	Restarts   int // of one of several servers
	Raises     int // second rounds, by server
	Violations int
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	s.Virtual += o.Virtual
	s.Grants += o.Grants
	s.HandOffs += o.HandOffs
	s.Batch = max(s.Batch, o.Batch)
	s.Cancels += o.Cancels
	s.Kills += o.Kills
	s.Runs += o.Runs
	s.Takeovers += o.Takeovers
	s.Replays += o.Replays
	s.Reentries += o.Reentries
	s.Losses += o.Losses
	s.Shares += o.Shares
	s.Beside = max(s.Beside, o.Beside)
	s.Faults += o.Faults
	s.Restarts += o.Restarts
	s.Raises += o.Raises
	s.Violations += o.Violations
}

func (s Stats) String() string {
	return fmt.Sprintf("%.1f virtual hours, %d grants, %d of them handed off, at most %d in a batch, %d re-entries, %d losses, %d runs, "+
		"%d takeovers, %d replays, %d shares, at most %d beside one, %d faults, %d servers restarted, %d tokens raised, %d processes killed, %d calls canceled in time, %d violations",
		s.Virtual.Hours(), s.Grants, s.HandOffs, s.Batch, s.Reentries, s.Losses, s.Runs,
		s.Takeovers, s.Replays, s.Shares, s.Beside, s.Faults, s.Restarts, s.Raises, s.Kills, s.Cancels, s.Violations)
}

// world is the state of a run.
type world struct {
	*oracle
	c      Config
	shared []*sharedKey
	slots  []atomic.Pointer[node] // the processes; a killed one is replaced by a new one
	dead   []*node                // owned by weather, then by end
	names  resp.Names
	copies sync.WaitGroup  // copies of requests on their way
	leases []time.Duration // of most calls for an exclusive key
	root   context.Context //nolint:containedctx // of every call; ends only if calls are stuck
	giveUp context.CancelFunc
	hush   atomic.Bool  // no message arrives at any process
	heard  atomic.Int64 // time of the last change of hush, in ns of the run
}

// Run runs one seed. It fails t for each violated invariant, and if too few events happened. It
// passes the counts to add, also for a seed that failed: a bubble that fails ends its test.
func Run(t *testing.T, c Config, add func(Stats)) {
	t.Helper()
	if c.Servers > 1 { // each of them costs as much as one alone
		c.Lockers, c.Keys, c.Workers = cmp.Or(c.Lockers, 3), cmp.Or(c.Keys, 2), cmp.Or(c.Workers, 6)
	}
	c.Minutes, c.Lockers = cmp.Or(c.Minutes, 8), cmp.Or(c.Lockers, []int{4, 1, 3, 8}[c.Seed%4])
	c.Keys, c.Workers = cmp.Or(c.Keys, 3), cmp.Or(c.Workers, 12)
	c.Servers = cmp.Or(c.Servers, 1)
	var s Stats
	defer func() { add(s) }()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, c)
		w.play()
		s = w.end()
	})
	if c.Servers > 1 {
		if s.Grants < 20*c.Minutes || s.HandOffs < 5*c.Minutes || s.Losses < c.Minutes || s.Faults < 6*c.Minutes || s.Kills == 0 || s.Restarts == 0 || s.Raises < c.Minutes {
			t.Errorf("seed %d: inconclusive: %v", c.Seed, s)
		}
		return
	}
	if s.Grants < 40*c.Minutes || s.Runs < 3*c.Minutes || s.Replays < 3*c.Minutes || s.Takeovers == 0 ||
		s.Losses < c.Minutes || s.Faults < 6*c.Minutes || s.Reentries == 0 || s.HandOffs < 20*c.Minutes || s.Cancels < 3*c.Minutes || s.Kills == 0 ||
		s.Shares < 40*c.Minutes || s.Beside < 2 {
		t.Errorf("seed %d: inconclusive: %v", c.Seed, s)
	}
}

func newWorld(t *testing.T, c Config) *world {
	t.Helper()
	w := &world{c: c, shared: newSharedKeys()}
	w.root, w.giveUp = context.WithCancel(context.Background())
	w.oracle = newOracle(t, c.Seed)
	for i := range c.Servers {
		w.servers = append(w.servers, w.newServer(i))
	}
	w.clear = w.calmLong
	w.slots = make([]atomic.Pointer[node], c.Lockers)
	for i := range w.slots {
		w.slots[i].Store(w.newNode(i, 1))
	}
	for i := range c.Keys {
		w.key(exclusiveKey(i))
		w.leases = append(w.leases, w.rng("lease", i).between(time.Second, 4*time.Second))
	}
	return w
}

// rng returns the random source of an actor.
func (w *world) rng(actor string, n int) rng {
	h := uint64(n)
	for _, b := range []byte(actor) {
		h = h*1099511628211 + uint64(b)
	}
	return rng{rand.New(rand.NewPCG(w.c.Seed, h))}
}

// play runs the workers and the faults for the time of the run, and then waits for the last call.
func (w *world) play() {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Duration(w.c.Minutes)*time.Minute)
	defer cancel()
	var work, sky, watch sync.WaitGroup
	for i := range w.c.Workers {
		wk := w.worker("worker", i)
		work.Go(func() { wk.loop(ctx, wk.exclusive) })
	}
	for i := range 8 {
		if c := w.c; c.Servers > 1 {
			break
		}
		once, share := w.worker("once", i), w.worker("share", i)
		work.Go(func() { once.loop(ctx, once.once) })
		work.Go(func() { share.loop(ctx, share.share) })
	}
	sky.Go(func() { w.weather(ctx) })
	done := make(chan struct{})
	watch.Go(func() { w.watch(done) })
	sky.Wait()
	idle := make(chan struct{})
	go func() { work.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(5 * time.Minute):
		w.fail("I6", "", "calls that never return: %s", w.whoWaits())
		w.giveUp()
		<-idle
	}
	close(done)
	watch.Wait()
	w.copies.Wait()
}

// nodes returns the live processes.
func (w *world) nodes() []*node {
	all := make([]*node, len(w.slots))
	for i := range w.slots {
		all[i] = w.slots[i].Load()
	}
	return all
}

// rng adds the methods that the actors use.
type rng struct{ *rand.Rand }

func (r rng) chance(percent int) bool { return r.IntN(100) < percent }

func (r rng) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}
