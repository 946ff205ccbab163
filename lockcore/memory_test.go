package lockcore_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const manyLeases = 100_000

// A held lease uses at most 1 KiB of heap and no goroutine.
// Shows: C3
func TestMemoryLease(t *testing.T) {
	unlessInflated(t)
	l := bare(t, lockcore.Options{})
	takeMany(t, l, "before", 10_000, lockcore.Terms{}, func(_ int, le *lockcore.Lease) { _ = le.Release(t.Context()) }) // opens the connections, so that they do not count
	leases := make([]*lockcore.Lease, manyLeases)
	before := readMemory(gone)
	takeMany(t, l, "account", manyLeases, lockcore.Terms{Lease: time.Hour}, func(i int, le *lockcore.Lease) { leases[i] = le }) // a long lease, so that none is renewed meanwhile
	after := readMemory(gone)
	per := after.since(before) / manyLeases
	t.Logf("%d bytes a lease", per)
	if per > 1024*103/100 {
		t.Errorf("%d bytes a lease, want at most 1 KiB", per)
	}
	if n := after.goroutines - before.goroutines; n > 10 {
		t.Errorf("%d goroutines for %d leases", n, manyLeases)
	}
	runtime.KeepAlive(leases)
	drop(l)
}

// A hand-off in a process allocates four times: the call, the hold, and its ctx twice.
func TestMemoryHandOff(t *testing.T) {
	unlessInflated(t)
	l := memoryLocker(t, lockcore.MemoryOptions{})
	const callers, each = 2, 5000
	allocs := testing.AllocsPerRun(1, func() { // on one processor, so each caller waits while the other one yields
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.Forever})
					if err != nil {
						t.Error(err)
						return
					}
					runtime.Gosched()
					if err := le.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
	if per := allocs / (callers * each); per > 4.5 { // the rest is for each batch
		t.Errorf("%.2f allocations a hand-off", per)
	} else {
		t.Logf("%.2f allocations a hand-off", per)
	}
}

// A waiter uses at most 2 KiB, on a goroutine whose stack has already grown beyond the smallest
// size. At most 600 bytes of that are on the heap.
// Shows: C3
func TestMemoryWaiter(t *testing.T) {
	unlessInflated(t)
	for _, wait := range []time.Duration{lockcore.Forever, time.Hour} {
		for _, n := range []int{1000, 100_000} {
			t.Run(fmt.Sprint(wait, "/", n), func(t *testing.T) {
				l := bare(t, lockcore.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer drop(l)
				if _, err := l.Acquire(ctx, "account:1", lockcore.Terms{}); err != nil {
					t.Fatal(err)
				}
				var waiters sync.WaitGroup
				defer waiters.Wait()
				defer cancel()
				start := make(chan struct{})
				for range n {
					waiters.Go(func() { inWork(start, l, ctx, wait) })
				}
				before := readMemory(time.Second)
				close(start)
				after := readMemory(2 * time.Second)
				per := after.since(before) / n
				heap := int(after.heap-before.heap) / n
				t.Logf("%d bytes a waiter, %d of them on the heap", per, heap)
				if per > 2048*103/100 || heap > 600 {
					t.Errorf("%d bytes a waiter, %d of them on the heap", per, heap)
				}
			})
		}
	}
}

// inWork calls Acquire from a frame of the size that a handler has.
//
//go:noinline
func inWork(start chan struct{}, l *lockcore.Locker, ctx context.Context, wait time.Duration) { //nolint:revive // ctx is that of the waiters
	var frame [1024]byte
	<-start
	_, _ = l.Acquire(ctx, "account:1", lockcore.Terms{Wait: wait})
	runtime.KeepAlive(&frame)
}

// Renewing 100,000 leases takes less than a second. On a slower machine it takes less than five
// times the duration of as many HMGETs in pipelines of a thousand, measured just before. One of three
// passes must, because the machine may have other work.
// Shows: C3
func TestRenewMany(t *testing.T) {
	unlessInflated(t)
	heard, rdb := new(passes), redistest.Real(t).Client(t)
	l, err := lockcore.New(rdb, lockcore.Options{Observer: heard})
	if err != nil {
		t.Fatal(err)
	}
	lease := longEnough(t, 9*time.Second)
	takeMany(t, l, "account", manyLeases, lockcore.Terms{Lease: lease}, func(int, *lockcore.Lease) {})
	before, taken, _ := heard.sum()
	kept, met := taken.Kept, false
	for i := 0; i < 3 && !met; i++ {
		bound := max(time.Second, 5*pipelines(t, rdb, manyLeases))
		time.Sleep(lease * 7 / 18) // each is renewed once
		until(t, "nine tenths are renewed", time.Minute+lease, func() bool {
			_, sum, _ := heard.sum()
			return sum.Kept-kept >= manyLeases*9/10
		})
		busy, sum, longest := heard.sum()
		if sum.Gone > 0 {
			t.Errorf("leases are lost: %+v", sum)
		}
		pass := (busy - before) * manyLeases / time.Duration(max(sum.Kept-kept, 1))
		t.Logf("%d renewals took %v, so %d take %v, the bound is %v; the slowest batch %v", sum.Kept-kept, busy-before, manyLeases, pass, bound, longest)
		before, kept, met = busy, sum.Kept, pass <= bound
	}
	drop(l)
	if !met {
		t.Error("each pass takes longer than its bound")
	}
}

// longEnough returns a lease of at least d. On a slow machine it is longer, so that manyLeases can
// be acquired and renewed in a part of it.
func longEnough(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	return max(d, 50*pipelines(t, redistest.Real(t).Client(t), manyLeases))
}

// pipelines returns how long n HMGETs take in pipelines of a thousand.
func pipelines(t *testing.T, rdb *redis.Client, n int) time.Duration {
	t.Helper()
	ok(t, rdb.HSet(t.Context(), "hash", "h", 1, "x", 1, "d", 1, "v", 1, "f", 1, "t", 1).Err())
	start := time.Now()
	for range n / 1000 {
		pipe := rdb.Pipeline()
		for range 1000 {
			pipe.HMGet(t.Context(), "hash", "h", "x", "d", "v", "f", "t")
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(start)
}

// A batch of renewals gets no reply. It delays no other batch, and no lease is lost.
func TestRenewSlowBatch(t *testing.T) {
	testlevel.Full(t)
	synctest.Test(t, func(t *testing.T) {
		heard := new(passes)
		l, faults, _ := newWorld(t).Locker(lockcore.Options{Observer: heard})
		leases := make([]*lockcore.Lease, 2500)
		for i := range leases {
			le, err := l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			leases[i] = le
		}
		lost := faults.LoseRequest(faulty.Script("renew"))
		time.Sleep(19 * time.Second) // each was due between 9 and 11 s, and that batch again before 19 s
		<-lost.Struck()
		heard.mu.Lock()
		i := slices.IndexFunc(heard.all, func(p pass) bool { return p.Failed > 0 })
		slow, others := heard.all[i], 0
		for _, p := range heard.all[:i] {
			if p.end.After(slow.end.Add(-slow.Took)) || p.end.Equal(slow.end.Add(-slow.Took)) {
				others += p.Kept
			}
		}
		heard.mu.Unlock()
		if slow.Took < time.Second || others < 1000 {
			t.Errorf("the slow batch took %v, %d leases were renewed in that time; want 1s and 1000", slow.Took, others)
		}
		if _, sum, _ := heard.sum(); sum.Failed > 1000 || sum.Kept < len(leases) || sum.Gone > 0 {
			t.Errorf("the renewals: %+v", sum)
		}
		for _, le := range leases {
			if err := le.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// passes is an Observer that keeps the events of renewals.
type passes struct {
	mu  sync.Mutex
	all []pass
}

type pass struct {
	event.RenewPass
	end time.Time
}

func (*passes) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (*passes) Traceparent(context.Context) string                             { return "" }

func (p *passes) Event(_ context.Context, e event.Event) {
	if e, ok := e.(event.RenewPass); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all = append(p.all, pass{e, time.Now()})
	}
}

// sum returns the time during which at least one batch was under way, the sum of the results, and
// the time of the slowest batch.
func (p *passes) sum() (busy time.Duration, sum event.RenewPass, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.SortedFunc(slices.Values(p.all), func(a, b pass) int { return a.end.Add(-a.Took).Compare(b.end.Add(-b.Took)) })
	var until time.Time
	for _, x := range all {
		sum.Kept, sum.Gone, sum.Failed = sum.Kept+x.Kept, sum.Gone+x.Gone, sum.Failed+x.Failed
		longest = max(longest, x.Took)
		if x.end.After(until) {
			busy += min(x.Took, x.end.Sub(until))
			until = x.end
		}
	}
	return busy, sum, longest
}

// takeMany acquires n keys from 64 goroutines.
func takeMany(t *testing.T, l *lockcore.Locker, name string, n int, terms lockcore.Terms, got func(int, *lockcore.Lease)) {
	t.Helper()
	terms.Wait = time.Minute // on a busy machine the connections of a pool may be busy too
	const by = 64
	var takers sync.WaitGroup
	for first := range by {
		takers.Go(func() {
			for i := first; i < n; i += by {
				le, err := l.Acquire(context.Background(), fmt.Sprintf("%s:%06d", name, i), terms)
				if err != nil {
					t.Error(err)
					return
				}
				got(i, le)
			}
		})
	}
	takers.Wait()
}

// bare returns a Locker without faults and a counter, which would use memory too.
func bare(t *testing.T, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.New(redistest.Real(t).Client(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drop closes l and does not wait for its leases.
func drop(l *lockcore.Locker) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx)
}

type memory struct {
	bytes, heap uint64
	goroutines  int
}

// gone is the time after which nothing refers to a call that has ended, not even its timer, which
// would have fired after 1 s.
const gone = 1200 * time.Millisecond

// readMemory reads the size of the heap and the stacks in use.
func readMemory(settle time.Duration) memory {
	time.Sleep(settle)
	runtime.GC()
	runtime.GC() // the second frees objects that sync.Pools kept during the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{m.HeapAlloc + m.StackInuse, m.HeapAlloc, runtime.NumGoroutine()}
}

func (m memory) since(before memory) int { return int(m.bytes) - int(before.bytes) }

// stride is the distance between the steps that a test takes: all of them at level campaign, else a
// sample.
func stride(t *testing.T) int {
	t.Helper()
	return testlevel.Pick(t, 64, 16, 1)
}

// unlessInflated skips a test that measures the machine, except at level campaign. It also skips
// it with the race detector, which makes code larger and slower.
func unlessInflated(t *testing.T) {
	t.Helper()
	testlevel.Campaign(t)
	if raced() {
		t.Skip("the race detector is on")
	}
}

func raced() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
