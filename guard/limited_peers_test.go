package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The cases of Redisson's RPermitExpirableSemaphore and RSemaphore, by the names that
// testdata/redisson.txt lists. A semaphore of Redisson stores the number of permits. Here each call passes its limit.

// permits returns terms that wait for weight permits of n.
func permits(weight, n int) testcall.Call {
	return testcall.Call{Limit: lockcore.Limit{N: n, Weight: weight}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
}

// tryPermits returns terms that do not wait for weight permits of n.
func tryPermits(weight, n int) testcall.Call {
	return testcall.Call{Limit: lockcore.Limit{N: n, Weight: weight}, Terms: lockcore.Terms{Wait: lockcore.NoWait}}
}

// weights fails the test if the weight of the held permits is not want.
func (f *fixture) weights(t *testing.T, want int) {
	t.Helper()
	if h := stateOf(t, f.other); h.Weights != want {
		t.Errorf("permits of weight %d are held, want %d", h.Weights, want)
	}
}

// never starts calls of both processes. It fails the test if more than weight n runs at once, or if
// a call does not run.
func (f *fixture) never(t *testing.T, n, callers, rounds int, weight func(i int) int) {
	t.Helper()
	var now, runs atomic.Int32
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range rounds {
				w := weight(i + j)
				err := guard.Limited(t.Context(), f.process(i), "k", lockcore.Limit{N: n, Weight: w}, lockcore.Terms{Wait: lockcore.Forever}, func(context.Context) error {
					runs.Add(1)
					if all := now.Add(int32(w)); all > int32(n) { //nolint:gosec // small
						t.Errorf("weight %d of %d", all, n)
					}
					time.Sleep(10 * time.Millisecond)
					now.Add(-int32(w)) //nolint:gosec // small
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := int(runs.Load()); got != callers*rounds {
		t.Errorf("%d runs, want %d", got, callers*rounds)
	}
	f.free(t, "k")
}

func one(int) int { return 1 }

func TestPeer_redissonPermitExpirableSemaphore(t *testing.T) {
	fixed := func(d time.Duration) testcall.Call { return fixedLease(tryPermits(1, 1))(d) }
	for name, test := range map[string]func(t *testing.T, f *fixture){
		// The shortest lease is one second.
		"testUpdateLeaseTime": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, fixed(time.Second))
			if err := le.Extend(t.Context(), 3*time.Second); err != nil {
				t.Error(err)
			}
			time.Sleep(2600 * time.Millisecond) // its ctx is canceled after 2.665 s
			f.weights(t, 1)
			if err := le.Context().Err(); err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
			f.weights(t, 0)
			if err := le.Extend(t.Context(), 2*time.Second); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
			_ = le.Release(t.Context())
		},
		// Differs: a key needs no permits before its first call.
		"testNotExistent": func(t *testing.T, f *fixture) {
			if h := stateOf(t, f.locks); h.State != lockcore.StateFree || h.Weights != 0 {
				t.Errorf("%+v", h)
			}
			release(t, get(t.Context(), t, f.locks, tryPermits(1, 1)))
		},
		// The same steps check acquiredPermits, which is Holding.Weights.
		"testAvailablePermits": func(t *testing.T, f *fixture) {
			terms := fixedLease(testcall.Call{Limit: lockcore.Limit{N: 2}, Terms: lockcore.Terms{Wait: 200 * time.Millisecond}})(time.Second)
			f.weights(t, 0)
			first := get(t.Context(), t, f.locks, terms)
			f.weights(t, 1)
			second := get(t.Context(), t, f.locks, terms)
			if _, err := terms.Acquire(t.Context(), f.locks, "k"); !errors.Is(err, lockcore.ErrBusy) {
				t.Error(err)
			}
			f.weights(t, 2)
			time.Sleep(1100 * time.Millisecond)
			fourth := get(t.Context(), t, f.locks, terms)
			f.weights(t, 1)
			time.Sleep(1100 * time.Millisecond)
			f.weights(t, 0)
			for _, le := range []*lockcore.Lease{first, second, fourth} {
				_ = le.Release(t.Context())
			}
		},
		// The data of a permit that is never released is deleted a day after its lease.
		"testExpiration": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, fixed(time.Second))
			time.Sleep(25 * time.Hour)
			if keys := f.memory.Redis.Keys(); len(keys) > 0 {
				t.Errorf("there are still %q", keys)
			}
			_ = le.Release(t.Context())
		},
		// testExpireTryAcquire has the same steps.
		"testExpire": func(t *testing.T, f *fixture) {
			began := time.Now()
			le := get(t.Context(), t, f.locks, fixed(2*time.Second))
			release(t, get(t.Context(), t, f.other, permits(1, 1)))
			within(t, began, 2*time.Second, 2250*time.Millisecond)
			if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
		},
		// Differs: to change the number of permits, the next call passes another n. No number is
		// stored, set or corrected.
		"testSetPermits": func(t *testing.T, f *fixture) {
			var all []*lockcore.Lease
			for range 3 {
				all = append(all, get(t.Context(), t, f.locks, tryPermits(1, 5)))
			}
			for _, n := range []int{3, 2} {
				refused(t.Context(), t, f.other, tryPermits(1, n), lockcore.ErrBusy)
			}
			all = append(all, get(t.Context(), t, f.other, tryPermits(1, 4)))
			f.weights(t, 4)
			release(t, all[:3]...)
			release(t, get(t.Context(), t, f.other, tryPermits(1, 2)))
			release(t, all[3])
			f.free(t, "k")
		},
		"testBlockingAcquire": func(t *testing.T, f *fixture) {
			began := time.Now()
			first := get(t.Context(), t, f.locks, permits(1, 1))
			time.AfterFunc(time.Second, func() { release(t, first) })
			f.weights(t, 1)
			second := get(t.Context(), t, f.other, permits(1, 1))
			within(t, began, time.Second, 1050*time.Millisecond)
			refused(t.Context(), t, f.locks, tryPermits(1, 1), lockcore.ErrBusy)
			release(t, second)
		},
		"testBlockingAcquireMany": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, permits(6, 10))
			f.weights(t, 6)
			release(t, le)
			f.weights(t, 0)
		},
		"testTryAcquire": func(t *testing.T, f *fixture) {
			first := get(t.Context(), t, f.locks, tryPermits(1, 1))
			refused(t.Context(), t, f.other, tryPermits(1, 1), lockcore.ErrBusy)
			began := time.Now()
			time.AfterFunc(500*time.Millisecond, func() { release(t, first) })
			terms := permits(1, 1)
			terms.Wait = time.Second
			second := get(t.Context(), t, f.other, terms)
			within(t, began, 500*time.Millisecond, 550*time.Millisecond)
			release(t, second)
		},
		"testTryAcquireMany": func(t *testing.T, f *fixture) {
			first, second := get(t.Context(), t, f.locks, tryPermits(4, 10)), get(t.Context(), t, f.other, tryPermits(5, 10))
			f.weights(t, 9)
			refused(t.Context(), t, f.other, tryPermits(2, 10), lockcore.ErrBusy)
			release(t, first, second, get(t.Context(), t, f.other, tryPermits(1, 10)))
		},
		"testReleaseExpired": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, fixed(time.Second))
			time.Sleep(1200 * time.Millisecond)
			if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
			f.weights(t, 0)
		},
		"testConcurrencyLoop_MultiInstance": func(t *testing.T, f *fixture) { f.never(t, 1, 16, 20, one) },
		// Differs: a lease of weight 6 is released as a whole. Permits that end at different times
		// need separate leases.
		"testRelease": func(t *testing.T, f *fixture) {
			four, two := get(t.Context(), t, f.locks, permits(4, 10)), get(t.Context(), t, f.locks, permits(2, 10))
			f.weights(t, 6)
			release(t, four)
			f.weights(t, 2)
			release(t, two)
			for _, le := range []*lockcore.Lease{four, two} {
				if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrReleased) {
					t.Error(err)
				}
			}
			f.weights(t, 0)
		},
		// Expired permits do not affect permits that are released.
		// testReleaseManyExpiredDoesNotThrow and testReleaseManyNotExistOrExpired check the same.
		"testTryReleaseManyExpired": func(t *testing.T, f *fixture) {
			timed := get(t.Context(), t, f.locks, fixedLease(tryPermits(3, 10))(time.Second))
			kept := get(t.Context(), t, f.locks, tryPermits(3, 10))
			f.weights(t, 6)
			time.Sleep(1200 * time.Millisecond)
			f.weights(t, 3)
			release(t, kept)
			if err := timed.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
			f.weights(t, 0)
		},
		// Differs: each permit has a lease that ends, and Inspect returns the remaining time.
		"testGetLeaseTime": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, fixed(2*time.Second))
			time.Sleep(100 * time.Millisecond)
			if h := stateOf(t, f.other); len(h.Shares) != 1 || h.Shares[0].Remaining > 1900*time.Millisecond || h.Shares[0].Remaining < 1800*time.Millisecond {
				t.Errorf("%+v", h)
			}
			release(t, le)
		},
		"testConcurrencyMultiPermits":  func(t *testing.T, f *fixture) { f.never(t, 2, 2, 5, func(int) int { return 2 }) },
		"testConcurrencyMultiPermits2": func(t *testing.T, f *fixture) { f.never(t, 2, 2, 5, func(i int) int { return 1 + i%2 }) },
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

func TestPeer_redissonSemaphore(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		// Differs: a call that waits for 2 permits keeps later calls out, so they do not starve it.
		"testAcquireAfterAddPermits": func(t *testing.T, f *fixture) {
			first := get(t.Context(), t, f.locks, permits(1, 2))
			done := make(chan struct{})
			go func() {
				defer close(done)
				release(t, get(t.Context(), t, f.other, permits(2, 2)))
			}()
			time.Sleep(time.Second)
			refused(t.Context(), t, f.locks, tryPermits(1, 2), lockcore.ErrBusy)
			began := time.Now()
			release(t, first)
			<-done
			within(t, began, 0, 50*time.Millisecond)
		},
		// Differs: no call sets the number of permits, and no release adds a permit.
		"testAcquireWithoutSetPermits": func(t *testing.T, f *fixture) {
			release(t, get(t.Context(), t, f.locks, tryPermits(2, 2)))
		},
		"testBlockingNAcquire": func(t *testing.T, f *fixture) {
			began := time.Now()
			var held []*lockcore.Lease
			for range 3 {
				held = append(held, get(t.Context(), t, f.locks, permits(1, 5)))
			}
			for i, le := range held[:2] {
				time.AfterFunc(time.Duration(i+1)*500*time.Millisecond, func() { release(t, le) })
			}
			refused(t.Context(), t, f.other, tryPermits(4, 5), lockcore.ErrBusy)
			le := get(t.Context(), t, f.other, permits(4, 5))
			within(t, began, time.Second, 1050*time.Millisecond)
			f.weights(t, 5)
			release(t, le, held[2])
		},
		"testReleaseAcquire": func(t *testing.T, f *fixture) {
			for _, weight := range []int{1, 5} {
				le := get(t.Context(), t, f.locks, permits(weight, 10))
				f.weights(t, weight)
				release(t, le)
				f.weights(t, 0)
			}
		},
		// Differs: a release without a permit adds none.
		"testReleaseWithoutPermits": func(t *testing.T, f *fixture) {
			le := get(t.Context(), t, f.locks, permits(1, 1))
			for range 3 {
				_ = le.Release(t.Context())
			}
			le = get(t.Context(), t, f.locks, permits(1, 1))
			refused(t.Context(), t, f.other, tryPermits(1, 1), lockcore.ErrBusy)
			release(t, le)
		},
		"testConcurrencyLoopMax_MultiInstance": func(t *testing.T, f *fixture) {
			f.never(t, 1_000_000, 4, 10, func(i int) int { return []int{1, 1_000_000}[i%2] })
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

// Redisson #6664, #6687 and #5762: a call that waits for permits does not notice their release
// until its wait has ended. Here a release ends the wait, also if the permits are released in several
// parts.
// Shows: S4
func TestPeer_redissonSemaphoreSleepsThroughARelease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		for _, parts := range [][]int{{2}, {1, 1}} {
			for _, waiter := range []*lockcore.Locker{f.locks, f.other} {
				var held []*lockcore.Lease
				for _, weight := range parts {
					held = append(held, get(t.Context(), t, f.locks, permits(weight, 2)))
				}
				var wg sync.WaitGroup
				var mu sync.Mutex
				var got []time.Time
				for range 2 {
					wg.Go(func() {
						le := get(t.Context(), t, waiter, permits(2, 2))
						mu.Lock()
						got = append(got, time.Now())
						mu.Unlock()
						time.Sleep(500 * time.Millisecond)
						release(t, le)
					})
				}
				time.Sleep(500 * time.Millisecond)
				began := time.Now()
				release(t, held...)
				wg.Wait()
				for i, at := range got {
					if late := at.Sub(began) - time.Duration(i)*500*time.Millisecond; late > 20*time.Millisecond {
						t.Errorf("parts %v: call %d slept for %v after a release", parts, i, late)
					}
				}
			}
		}
	})
}

// Redisson #4678: all permits are taken, and a process that starts and calls trySetPermits adds the
// same number again. Here such a process finds the permits of the others busy. A limit of 0 permits
// is an error.
func TestPeer_redissonPermitsAfterZero(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var held []*lockcore.Lease
		for range 10 {
			held = append(held, get(t.Context(), t, f.locks, tryPermits(1, 10)))
		}
		refused(t.Context(), t, f.other, tryPermits(1, 10), lockcore.ErrBusy)
		err := guard.Limited(t.Context(), f.other, "k", lockcore.Limit{}, noWait, nothing)
		if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "Limit.N is 0") {
			t.Error(err)
		}
		release(t, held...)
		f.weights(t, 0)
	})
}

// Redisson #2045, #4462 and #2213: a machine that is lost keeps its permits forever. Here they are
// free at most 250 ms after their leases, and no permit is added when the machine is back.
// Shows: S5
func TestPeer_redissonLostMachineKeepsPermit(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		lost := []*lockcore.Lease{get(t.Context(), t, f.locks, permits(1, 3)), get(t.Context(), t, f.locks, permits(1, 3))}
		alive := get(t.Context(), t, f.other, permits(1, 3))
		time.Sleep(time.Minute) // renewed meanwhile
		end := time.Now()
		for _, s := range stateOf(t, f.other).Shares {
			if s.Holder.Locker != f.locks.ID() {
				continue
			}
			end = slices.MaxFunc([]time.Time{end, time.Now().Add(s.Remaining)}, time.Time.Compare)
		}
		f.faults.Silence()
		heavy := get(t.Context(), t, f.other, permits(2, 3))
		if late := time.Since(end); late > 250*time.Millisecond {
			t.Errorf("free %v after the leases", late)
		}
		for _, le := range lost {
			if le.Context().Err() == nil {
				t.Error("the ctx of a permit of the lost machine has not ended")
			}
		}
		f.faults.Heal()
		for _, le := range lost {
			_ = le.Release(t.Context())
		}
		f.weights(t, 3)
		refused(t.Context(), t, f.locks, tryPermits(1, 3), lockcore.ErrBusy)
		release(t, alive, heavy)
		f.free(t, "k")
	})
}
