package lockcore_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var (
	starve  = flag.Duration("starve", 20*time.Second, "how long TestScaleStarved holds its leases")
	periods = flag.Int("periods", 3, "how often TestScaleLeases has each lease renewed")
)

// counted returns a Locker on s, and a counter of its commands.
func counted(t *testing.T, s *redistest.Server, o lockcore.Options) (*lockcore.Locker, *redistest.Counter) {
	t.Helper()
	count := new(redistest.Counter)
	l, err := lockcore.New(s.Client(t, func(ro *redis.Options) { ro.Dialer = count.Dial(ro.Dialer) }), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l, count
}

// until polls ok until it is true, and fails after bound.
func until(t *testing.T, what string, bound time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, bound)
		}
	}
}

func subscriptions(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "id=")
}

// waiting is an Observer that counts the calls that wait.
type waiting struct{ n atomic.Int64 }

func (*waiting) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (*waiting) Traceparent(context.Context) string                             { return "" }

func (w *waiting) Event(_ context.Context, e event.Event) {
	if _, ok := e.(event.Waiting); ok {
		w.n.Add(1)
	}
}

// batchThreshold makes n calls at the same time. Each runs hold with its lease and releases it.
func batchThreshold(t *testing.T, n int, call func(i int) (*lockcore.Lease, error), hold func(i int, le *lockcore.Lease)) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			le, err := call(i)
			if err != nil {
				t.Error(err)
				return
			}
			if hold != nil {
				hold(i, le)
			}
			if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	return &wg
}

// 10,000 calls wait for one key. They need one subscription and at most two commands a second. All
// are served with growing tokens, and each batch that ends while others wait sends one
// notification.
// Shows: C4
func TestScaleWaiters(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	const n = 10_000
	s := redistest.Real(t)
	rdb, heard := s.Client(t), new(waiting)
	l, count := counted(t, s, lockcore.Options{Observer: heard}) // the first client that uses the scripts, so they are counted by name
	takeOnce(t, l, "warm")
	holder, _ := counted(t, s, lockcore.Options{Observer: heard})
	first, err := holder.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	var last, served int64 // guarded by the key
	inTurn := func(_ int, le *lockcore.Lease) {
		if le.Token() <= last {
			t.Errorf("token %d after %d", le.Token(), last)
		}
		last = le.Token()
		served++
	}
	wg := batchThreshold(t, n, func(int) (*lockcore.Lease, error) { return l.Acquire(t.Context(), "k", long) }, inTurn)
	until(t, "all wait", time.Minute, func() bool { return heard.n.Load() == n })
	until(t, "a subscription", time.Minute, func() bool { return subscriptions(t, rdb) > 0 })
	if subs := subscriptions(t, rdb); subs != 1 {
		t.Errorf("%d subscriptions", subs)
	}
	count.Reset()
	quiet := time.Now()
	time.Sleep(2 * time.Second) // all calls wait
	until(t, "a request of the waiters", time.Minute, func() bool { return len(count.Commands()) > 0 })
	if asked, d := len(count.Commands()), time.Since(quiet); float64(asked) > 2*d.Seconds() {
		t.Errorf("%d commands in %v: %s", asked, d, count)
	}
	beside := batchThreshold(t, n, func(int) (*lockcore.Lease, error) { return holder.Acquire(t.Context(), "k", long) }, inTurn) // in the process of the holder
	until(t, "all wait", time.Minute, func() bool { return heard.n.Load() == 2*n })
	messages, scripts, start := ran(t, rdb, "publish"), ran(t, rdb, "evalsha"), time.Now()
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	beside.Wait()
	messages, scripts = ran(t, rdb, "publish")-messages, ran(t, rdb, "evalsha")-scripts
	t.Logf("%d served in %v; %d messages, %d scripts", served, time.Since(start), messages, scripts)
	if served != 2*n || messages == 0 || 2*messages > scripts+5 { // one script ends a batch, one is sent by the process that is notified of it
		t.Errorf("%d served; %d messages, %d scripts", served, messages, scripts)
	}
}

// ran returns how often the server has run a command, also in scripts.
func ran(t *testing.T, rdb *redis.Client, command string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_"+command+":calls=")
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

// 10,000 calls of two processes acquire 1,000 keys. All are served, one at a time for each key.
// Each process has one subscription.
func TestScaleKeys(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	const keys, calls = 1000, 10
	s := redistest.Real(t)
	rdb, inside := s.Client(t), make([]atomic.Int32, keys)
	a, _ := counted(t, s, lockcore.Options{})
	b, _ := counted(t, s, lockcore.Options{})
	var served atomic.Int64
	start := time.Now()
	batchThreshold(t, keys*calls, func(i int) (*lockcore.Lease, error) {
		return []*lockcore.Locker{a, b}[i/keys%2].Acquire(t.Context(), fmt.Sprint(i%keys), long)
	}, func(i int, _ *lockcore.Lease) {
		if n := inside[i%keys].Add(1); n != 1 {
			t.Errorf("%d holders at the same time", n)
		}
		runtime.Gosched()
		inside[i%keys].Add(-1)
		served.Add(1)
	}).Wait()
	t.Logf("%d served in %v", served.Load(), time.Since(start))
	if subs := subscriptions(t, rdb); served.Load() != keys*calls || subs > 2 {
		t.Errorf("%d served, %d subscriptions", served.Load(), subs)
	}
}

// Each of 100,000 leases is renewed three times. None is lost, and no ctx ends.
// Shows: C4
func TestScaleLeases(t *testing.T) {
	unlessInflated(t)
	heard, leases := new(passes), make([]*lockcore.Lease, manyLeases)
	l := bare(t, lockcore.Options{Observer: heard})
	lease := longEnough(t, 10*time.Second)
	start := time.Now()
	takeMany(t, l, "account", manyLeases, lockcore.Terms{Lease: lease}, func(i int, le *lockcore.Lease) { leases[i] = le })
	taken := time.Now()
	until(t, "renewed", 3*time.Duration(*periods)*lease, func() bool {
		_, sum, _ := heard.sum()
		return sum.Kept >= *periods*manyLeases
	})
	busy, sum, longest := heard.sum()
	held := time.Now()
	t.Logf("acquired in %v, held for %v: %+v in %v, the slowest batch %v", taken.Sub(start), held.Sub(taken), sum, busy, longest)
	if sum.Gone > 0 { // a failed renewal is sent again
		t.Errorf("leases are lost: %+v", sum)
	}
	giveBack(t, leases)
	t.Logf("released in %v", time.Since(held))
	drop(l)
}

// giveBack releases leases, and fails if one was lost.
func giveBack(t *testing.T, leases []*lockcore.Lease) {
	t.Helper()
	const by = 64
	var lost atomic.Int64
	var wg sync.WaitGroup
	for first := range by {
		wg.Go(func() {
			for i := first; i < len(leases); i += by {
				if leases[i] == nil || leases[i].Context().Err() != nil || leases[i].Release(context.Background()) != nil {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if lost.Load() > 0 {
		t.Errorf("%d of %d leases were lost", lost.Load(), len(leases))
	}
}

// A process has one processor and eight goroutines that compute all the time. It keeps 1,000 leases
// of 6 s (https://github.com/redis/rueidis/issues/923).
// Shows: C4
func TestScaleStarved(t *testing.T) {
	unlessInflated(t)
	heard, leases := new(passes), make([]*lockcore.Lease, 1000)
	l := bare(t, lockcore.Options{Observer: heard})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other test runs at the same time
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() { compute(stop) })
	}
	takeMany(t, l, "account", len(leases), lockcore.Terms{Lease: 6 * time.Second, Wait: time.Minute}, func(i int, le *lockcore.Lease) { leases[i] = le })
	time.Sleep(*starve) // the leases are held
	_, sum, longest := heard.sum()
	giveBack(t, leases)
	close(stop)
	busy.Wait()
	t.Logf("%d leases for %v: %+v, the slowest batch %v", len(leases), *starve, sum, longest)
	if least := len(leases) * int(*starve/(6*time.Second)); sum.Gone > 0 || sum.Kept < least { // a lease that is still valid was renewed
		t.Errorf("%+v, expected at least %d to be kept", sum, least)
	}
	drop(l)
}

// compute uses a processor until stop is closed.
func compute(stop <-chan struct{}) {
	for x := uint64(1); ; x = x*6364136223846793005 + 1 {
		if x%(1<<20) == 1 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}
