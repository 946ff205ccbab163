package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// room counts the holds of a key. It notes a writer that runs with other holds, and a weight above
// the limit.
type room struct {
	mu          sync.Mutex
	writers     int
	weight      int
	most, limit int
	bad         string
}

func (r *room) enter(t testcall.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Alone() {
		r.writers++
	} else {
		r.weight += t.Weight()
	}
	r.most = max(r.most, r.weight)
	if r.writers > 1 || r.writers > 0 && r.weight > 0 || r.limit > 0 && r.weight > r.limit {
		r.bad = fmt.Sprintf("%d writers, weight %d", r.writers, r.weight)
	}
}

func (r *room) leave(t testcall.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Alone() {
		r.writers--
	} else {
		r.weight -= t.Weight()
	}
}

// Readers, writers and permits of several Lockers acquire one key. A writer always runs alone, the
// weights never exceed the limit, and all calls are served.
// Shows: I1, S1, S2
func TestShares(t *testing.T) {
	rounds := testlevel.Pick(t, 10, 40, 40)
	for name, terms := range map[string]func(r *rand.Rand) testcall.Call{
		"readers and writers": func(r *rand.Rand) testcall.Call {
			if r.IntN(10) == 0 {
				return testcall.Call{}
			}
			return testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}}
		},
		"permits": func(*rand.Rand) testcall.Call { return testcall.Call{Limit: lockcore.Limit{N: 3}} },
		"weights": func(r *rand.Rand) testcall.Call {
			return testcall.Call{Limit: lockcore.Limit{N: 3, Weight: 1 + r.IntN(3)}}
		},
		"permits and writers": func(r *rand.Rand) testcall.Call {
			if r.IntN(10) == 0 {
				return testcall.Call{}
			}
			return testcall.Call{Limit: lockcore.Limit{N: 3, Weight: r.IntN(3)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSpace(t)
				var lockers []*lockcore.Locker
				for range 3 {
					l := w.Locker(lockcore.Options{})
					lockers = append(lockers, l)
				}
				r := new(room)
				if name == "permits" || name == "weights" {
					r.limit = 3
				}
				var all sync.WaitGroup
				var longest atomic.Int64
				for i := range 24 {
					all.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(i), 7))
						for range rounds {
							terms := terms(rnd)
							terms.Wait = lockcore.Forever
							began := time.Now()
							le, err := terms.Acquire(t.Context(), lockers[i%3], "k")
							if err != nil {
								t.Error(err)
								return
							}
							longest.Store(max(longest.Load(), int64(time.Since(began))))
							r.enter(terms)
							time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
							r.leave(terms)
							if err := le.Release(t.Context()); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(rnd.IntN(2)*rnd.IntN(9000)) * time.Microsecond)
						}
					})
				}
				all.Wait()
				if r.bad != "" || r.writers != 0 || r.weight != 0 {
					t.Errorf("%s; at the end %d writers, weight %d", r.bad, r.writers, r.weight)
				}
				if r.most < 2 {
					t.Error("no two shares were held at the same time")
				}
				t.Logf("the longest wait was %v, at most weight %d", time.Duration(longest.Load()), r.most)
				s, err := lockers[0].Inspect(t.Context(), event.KindExclusive, "k")
				if err != nil || s.State != lockcore.StateFree || s.Queue != 0 {
					t.Errorf("at the end %+v, %v", s, err)
				}
			})
		})
	}
}

// A call inside a permit of limit 3 returns ErrUpgrade if it requests the whole key, a smaller
// limit or a greater weight. Other calls are nested, with the same token.
// Shows: S8
func TestSharesUpgrade(t *testing.T) {
	l, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	le, err := l.AcquireShare(t.Context(), "k", lockcore.Limit{N: 3}, lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = le.Release(context.WithoutCancel(t.Context())) }()
	for _, terms := range []testcall.Call{{}, {Limit: lockcore.Limit{N: 2}}, {Limit: lockcore.Limit{N: 3, Weight: 2}}} {
		if _, err := terms.Acquire(le.Context(), l, "k"); !errors.Is(err, lockcore.ErrUpgrade) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%+v: %v", terms, err)
		}
	}
	for _, terms := range []testcall.Call{{Limit: lockcore.Limit{N: 3}}, {Limit: lockcore.Limit{N: lockcore.Unlimited}}, {Limit: lockcore.Limit{N: 5}}} {
		inner, err := terms.Acquire(le.Context(), l, "k")
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != le.Token() {
			t.Errorf("token %d, want %d", inner.Token(), le.Token())
		}
		if err := inner.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// shareOf acquires a share of "k" and fails the test on an error.
func shareOf(t *testing.T, l *lockcore.Locker, terms testcall.Call) *lockcore.Lease {
	t.Helper()
	le, err := terms.Acquire(t.Context(), l, "k")
	if err != nil {
		t.Fatal(err)
	}
	return le
}

// Calls that begin within 5 ms join one share, and need two commands for all of them. Later calls
// do not join.
// Shows: S9
func TestShareJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		readers := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}}
		_ = shareOf(t, l, readers).Release(t.Context()) // loads the scripts
		count.Reset()
		time.Sleep(10 * time.Millisecond)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				le := shareOf(t, l, readers)
				time.Sleep(20 * time.Millisecond)
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := count.Commands(); !slices.Equal(sent, []string{"acquire_share", "release_share"}) {
			t.Errorf("64 readers at the same time sent %v", sent)
		}
		count.Reset()
		first := shareOf(t, l, readers)
		time.Sleep(4 * time.Millisecond)
		second := shareOf(t, l, readers)
		time.Sleep(time.Millisecond)
		third := shareOf(t, l, readers)
		if n := count.Count("acquire_share"); n != 2 {
			t.Errorf("%d requests, want 2, because the third call began after 5 ms", n)
		}
		if first.Token() != second.Token() || first.Token() != third.Token() {
			t.Errorf("tokens %d, %d, %d, want one token for all shares", first.Token(), second.Token(), third.Token())
		}
		_ = first.Release(t.Context())
		if n := count.Count("release_share"); n != 0 {
			t.Error("the first of two holds released their share")
		}
		for _, le := range []*lockcore.Lease{second, third} {
			_ = le.Release(t.Context())
		}
		if n := count.Count("release_share"); n != 2 {
			t.Errorf("%d releases, want 2", n)
		}
	})
}

// One reader of a share reaches MaxHold. The other reader keeps the share. A writer gets the key
// one lease after the release of the other reader.
// Shows: S9
func TestShareOneLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		terms := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Lease: 2 * time.Second}}
		hung := terms
		hung.MaxHold = time.Second
		first, second := shareOf(t, l, hung), shareOf(t, l, terms)
		time.Sleep(5 * time.Second)
		if cause := context.Cause(first.Context()); !errors.Is(cause, lockcore.ErrMaxHold) {
			t.Errorf("the first reader: %v", cause)
		}
		if second.Context().Err() != nil {
			t.Errorf("the second reader: %v", context.Cause(second.Context()))
		}
		if _, err := other.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a writer while the second reader runs: %v, want ErrBusy", err)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
		began := time.Now()
		le, err := other.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
		if took := time.Since(began); err != nil || took > 2250*time.Millisecond {
			t.Errorf("a writer that waits for the hung reader: %v after %v", err, took)
		}
		_ = le.Release(t.Context())
		if err := first.Release(t.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			t.Errorf("the release of the hung reader: %v", err)
		}
	})
}

// Revoke ends all shares in all processes. The key is granted only after the last handler has
// returned.
// Shows: S11
func TestShareRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		a := w.Locker(lockcore.Options{})
		b := w.Locker(lockcore.Options{})
		terms := testcall.Call{Limit: lockcore.Limit{N: 5}}
		all := []*lockcore.Lease{shareOf(t, a, terms), shareOf(t, a, terms), shareOf(t, b, terms)}
		time.Sleep(2 * time.Second) // the Lockers subscribe
		s, err := a.Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || s.State != lockcore.StateShared || s.Weights != 3 || len(s.Shares) != 3 || s.Shares[0].Limit.N != 5 {
			t.Errorf("Inspect: %+v, %v", s, err)
		}
		if err := b.Revoke(t.Context(), event.KindExclusive, "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		for i, le := range all {
			if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrRevoked) {
				t.Errorf("share %d: %v", i, cause)
			}
		}
		busy := testcall.Call{Limit: lockcore.Limit{N: 5}, Terms: lockcore.Terms{Wait: lockcore.NoWait}}
		if _, err := busy.Acquire(t.Context(), a, "k"); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a new share while revoked ones are held: %v, want ErrBusy", err)
		}
		for _, le := range all {
			_ = le.Release(t.Context())
		}
		_ = shareOf(t, a, busy).Release(t.Context())
	})
}

// With MinHold, at most Limit holds begin in any time of MinHold.
// Shows: S10
func TestShareMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		var lockers []*lockcore.Locker
		for range 2 {
			l := w.Locker(lockcore.Options{})
			lockers = append(lockers, l)
		}
		var mu sync.Mutex
		var starts []time.Time
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				for range 4 {
					le := shareOf(t, lockers[i%2], testcall.Call{Limit: lockcore.Limit{N: 3}, Terms: lockcore.Terms{MinHold: time.Second, Wait: lockcore.Forever}})
					mu.Lock()
					starts = append(starts, le.GrantedAt())
					mu.Unlock()
					_ = le.Release(t.Context())
				}
			})
		}
		all.Wait()
		slices.SortFunc(starts, time.Time.Compare)
		for i := 3; i < len(starts); i++ {
			if d := starts[i].Sub(starts[i-3]); d < time.Second {
				t.Errorf("4 holds began within %v", d)
			}
		}
		if took := starts[len(starts)-1].Sub(starts[0]); took > 20*time.Second {
			t.Errorf("48 holds, with 3 per second, took %v", took)
		}
	})
}

// Waiting calls of a process follow each other under one permit for the time of a batch. So a
// process sends fewer than 1.5 commands for each hold.
// Shows: C2
func TestShareHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		r := &room{limit: 2}
		var all sync.WaitGroup
		const calls = 120
		for range calls {
			all.Go(func() {
				terms := testcall.Call{Limit: lockcore.Limit{N: 2}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
				le := shareOf(t, l, terms)
				r.enter(terms)
				time.Sleep(time.Millisecond)
				r.leave(terms)
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := len(count.Commands()); sent >= calls*3/2 || r.bad != "" || r.most != 2 {
			t.Errorf("%d commands for %d holds, at most weight %d, %s", sent, calls, r.most, r.bad)
		}
	})
}

// The calls of a process get permits in the order in which they began, including the call that has
// a request in the remote queue.
// Shows: S3
func TestShareInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		terms := testcall.Call{Limit: lockcore.Limit{N: 2}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
		var all sync.WaitGroup
		var orders [2][]int
		for p := range orders {
			l := w.Locker(lockcore.Options{})
			var mu sync.Mutex
			for i := range 24 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
					le := shareOf(t, l, terms)
					mu.Lock()
					orders[p] = append(orders[p], i)
					mu.Unlock()
					time.Sleep(2 * time.Millisecond)
					_ = le.Release(t.Context())
				})
			}
		}
		all.Wait()
		for p, order := range orders {
			if len(order) != 24 || !slices.IsSorted(order) {
				t.Errorf("process %d served its calls in the order %v", p, order)
			}
		}
	})
}

// Calls end at the moment at which a share is handed to them. No permit is lost, and the limit is
// never exceeded.
// Shows: S5
func TestShareOfferEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		var all sync.WaitGroup
		var granted atomic.Int64
		r := &room{limit: 2}
		var lockers [2]*lockcore.Locker
		for p := range lockers {
			lockers[p] = w.Locker(lockcore.Options{})
			for i := range 12 {
				all.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(p), uint64(i)))
					for range 60 {
						terms := testcall.Call{Limit: lockcore.Limit{N: 2}, Terms: lockcore.Terms{Wait: time.Minute}}
						until := time.Duration(1+rnd.IntN(20)) * time.Millisecond
						bound := time.Hour
						switch rnd.IntN(3) {
						case 0:
							terms.Wait = until
						case 1:
							bound = until
						}
						ctx, cancel := context.WithTimeout(t.Context(), bound)
						le, err := terms.Acquire(ctx, lockers[p], "k")
						switch {
						case err == nil:
							granted.Add(1)
							r.enter(terms)
							time.Sleep(time.Millisecond)
							r.leave(terms)
							if err := le.Release(t.Context()); err != nil {
								t.Error(err)
							}
						case !errors.Is(err, lockcore.ErrNotRun) || terms.Wait == time.Minute && ctx.Err() == nil:
							t.Error(err)
							cancel()
							return
						}
						cancel()
					}
				})
			}
		}
		all.Wait()
		if r.bad != "" || r.most != 2 || granted.Load() < 100 {
			t.Errorf("%d holds, at most weight %d, %s", granted.Load(), r.most, r.bad)
		}
		time.Sleep(time.Second) // withdrawals are asynchronous
		s, err := lockers[0].Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || s.State != lockcore.StateFree || s.Queue != 0 {
			t.Errorf("at the end %+v, %v", s, err)
		}
	})
}

// Readers of another process join each other and hand their share off. A writer still waits for at
// most the time of a batch and one read.
// Shows: S3
func TestShareWriterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		a := w.Locker(lockcore.Options{})
		b := w.Locker(lockcore.Options{})
		const read, batch = 2 * time.Millisecond, 5 * time.Millisecond
		done := make(chan struct{})
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for time.Sleep(time.Duration(i) * read / 16); ; {
					le := shareOf(t, a, testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Wait: lockcore.Forever}})
					time.Sleep(read)
					_ = le.Release(t.Context())
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		var longest time.Duration
		for i := range 50 {
			time.Sleep(20*time.Millisecond + time.Duration(i)*100*time.Microsecond)
			began := time.Now()
			le := shareOf(t, b, testcall.Call{Terms: lockcore.Terms{Wait: lockcore.Forever}})
			if i > 0 { // the first one also waits for the subscription
				longest = max(longest, time.Since(began))
			}
			_ = le.Release(t.Context())
		}
		close(done)
		all.Wait()
		if longest > batch+read || longest < read {
			t.Errorf("the longest wait was %v, want at most %v", longest, batch+read)
		}
	})
}

// Close reaches its deadline. It cancels the remaining holds of all shares, also of calls that
// joined one.
func TestShareClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lockcore.NewMemory(lockcore.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		terms := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}}
		first, second := shareOf(t, l, terms), shareOf(t, l, terms)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err == nil || !strings.Contains(err.Error(), "2") {
			t.Errorf("Close: %v", err)
		}
		for _, le := range []*lockcore.Lease{first, second} {
			if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrGivenUp) {
				t.Error(cause)
			}
			_ = le.Release(context.WithoutCancel(t.Context()))
		}
	})
}
