package guard_test

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
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// limit returns a KeyLimit without a weight.
func limit(key string, n int) guard.KeyLimit {
	return guard.KeyLimit{Key: key, Limit: lockcore.Limit{N: n}}
}

// held returns the weight of the permits of key that are held.
func (f *fixture) held(t *testing.T, key string) int {
	t.Helper()
	h, err := f.other.Inspect(t.Context(), event.KindExclusive, key)
	if err != nil {
		t.Fatal(err)
	}
	return h.Weights
}

// The limits are acquired by N, then by key, then without a limit, then rates alone, the slowest first,
// for any order of the list.
func TestLimitedAllOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		limits := []guard.KeyLimit{
			limit("z", 1), limit("b", 3), limit("c", 3), limit("a", 20), limit("0", lockcore.Unlimited),
			{Key: "1", Limit: lockcore.Limit{Rate: lockcore.Rate{N: 1000, Burst: 100}}},
			{Key: "2", Limit: lockcore.Limit{Rate: lockcore.Rate{N: 500, Burst: 100}}},
		}
		for range 20 {
			rand.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
			given := slices.Clone(limits)
			f.events.Reset()
			if err := guard.LimitedAll(t.Context(), f.locks, limits, noWait, nothing); err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, c := range f.events.Calls() {
				keys = append(keys, c.Key)
			}
			if got := strings.Join(keys, " "); got != "z b c a 0 2 1" || !slices.Equal(limits, given) {
				t.Fatalf("acquired %s for %v, which is now %v", got, given, limits)
			}
		}
	})
}

// Two processes name the same keys, which have the same limit, in opposite orders. No call times
// out.
// Shows: N3
func TestLimitedAllOppositeOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var wg sync.WaitGroup
		var runs atomic.Int32
		a, b := limit("a", 1), limit("b", 1)
		for range 10 {
			for l, limits := range map[*lockcore.Locker][]guard.KeyLimit{f.locks: {a, b}, f.other: {b, a}} {
				wg.Go(func() {
					err := guard.LimitedAll(t.Context(), l, limits, lockcore.Terms{Wait: time.Minute}, func(context.Context) error {
						runs.Add(1)
						time.Sleep(10 * time.Millisecond)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if runs.Load() != 20 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// 64 goroutines need permits of up to 3 of 8 keys, with weights, in any order. Each call runs, and no
// key has more than its limit.
// Shows: N3
func TestLimitedAllMany(t *testing.T) {
	many := func(t *testing.T, rounds int, lockers ...*lockcore.Locker) {
		t.Helper()
		var running [8]atomic.Int64
		var runs atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // no secret
				for range rounds {
					var limits []guard.KeyLimit
					for _, k := range rnd.Perm(len(running))[:1+rnd.IntN(3)] {
						n := 1 + k%4
						limits = append(limits, guard.KeyLimit{Key: fmt.Sprint(k), Limit: lockcore.Limit{N: n, Weight: 1 + rnd.IntN(n)}})
					}
					err := guard.LimitedAll(t.Context(), lockers[i%len(lockers)], limits, forever, func(ctx context.Context) error {
						for _, l := range limits {
							guard.MustHold(ctx, l.Key)
							g := &running[l.Key[0]-'0']
							if sum := g.Add(int64(l.Limit.Weight)); sum > int64(l.Limit.N) {
								t.Errorf("key %s has weight %d of %d", l.Key, sum, l.Limit.N)
							}
							defer g.Add(-int64(l.Limit.Weight))
						}
						time.Sleep(time.Millisecond)
						runs.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got, want := int(runs.Load()), 64*rounds; got != want {
			t.Errorf("%d runs, want %d", got, want)
		}
	}
	t.Run("memory", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) { many(t, 10, f.locks, f.other) })
	})
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t)
		server := redistest.Real(t)
		var lockers []*lockcore.Locker
		for range 3 {
			locks, err := lockcore.New(server.Client(t), lockcore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close(context.Background())
			lockers = append(lockers, locks)
		}
		many(t, 10, lockers...)
	})
}

// The last permit is not free until Wait is over. The error names its key. The other permits are
// free at once, also with a MinHold. Wait bounds the time for all of them.
// Shows: N4
func TestLimitedAllBusy(t *testing.T) {
	for name, tt := range map[string]struct{ wait, took time.Duration }{
		"NoWait":  {wait: lockcore.NoWait},
		"default": {took: 2 * time.Second},
		"5 s":     {wait: 5 * time.Second, took: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				if tt.took > 0 { // a part of Wait passes before the first permit is acquired
					tenant := f.hold(t, "tenant")
					time.AfterFunc(1500*time.Millisecond, func() { _ = tenant.Release(t.Context()) })
				}
				var last *lockcore.Lease
				for range 2 {
					lease, err := f.other.AcquireShare(t.Context(), "all", lockcore.Limit{N: 2}, noWait)
					if err != nil {
						t.Fatal(err)
					}
					last = lease
				}
				limits := []guard.KeyLimit{limit("all", 2), limit("tenant", 1)}
				runs, began := 0, time.Now()
				if tt.took > 0 {
					time.AfterFunc(1800*time.Millisecond, func() {
						if n := f.held(t, "tenant"); n != 1 {
							t.Errorf("the call that waits for the last permit holds weight %d of the first key", n)
						}
					})
				}
				terms := lockcore.Terms{Wait: tt.wait, MinHold: time.Hour}
				err := guard.LimitedAll(t.Context(), f.locks, limits, terms, fails(&runs, nil))
				busy, ok := errors.AsType[*lockcore.BusyError](err)
				if !ok || busy.Key != "all" || runs != 0 {
					t.Errorf("%v, %d runs; want all to be busy", err, runs)
				}
				if took := time.Since(began); took < tt.took || took > tt.took+100*time.Millisecond {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				f.free(t, "tenant")
				synctest.Wait() // for the withdrawal of the request
				_ = last.Release(t.Context())
				if err := guard.LimitedAll(t.Context(), f.locks, limits, noWait, fails(&runs, nil)); err != nil || runs != 1 {
					t.Errorf("%v, %d runs after a permit was released", err, runs)
				}
			})
		})
	}
}

// Two calls give a key different limits, so that they acquire two keys in opposite orders, and each
// has what the other one needs. The first of them to reach the end of its Wait gives up, and the
// other one runs.
func TestLimitedAllOtherN(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		first := make(chan error, 1)
		f.faults.DelayFunc(func() time.Duration { return 100 * time.Millisecond })
		go func() {
			limits := []guard.KeyLimit{limit("a", 1), limit("b", 2)}
			first <- guard.LimitedAll(t.Context(), f.locks, limits, lockcore.Terms{Wait: 5 * time.Second}, nothing)
		}()
		for f.held(t, "a") == 0 {
			time.Sleep(time.Millisecond)
		}
		began, runs := time.Now(), 0
		limits := []guard.KeyLimit{{Key: "a", Limit: lockcore.Limit{N: 3, Weight: 3}}, {Key: "b", Limit: lockcore.Limit{N: 2, Weight: 2}}}
		err := guard.LimitedAll(t.Context(), f.other, limits, lockcore.Terms{Wait: time.Minute}, fails(&runs, nil))
		if took := time.Since(began); err != nil || runs != 1 || took < 4*time.Second || took > 7*time.Second {
			t.Errorf("the second call: %v after %v, %d runs", err, took, runs)
		}
		if busy, ok := errors.AsType[*lockcore.BusyError](<-first); !ok || busy.Key != "b" {
			t.Errorf("the first call: %v", busy)
		}
		f.free(t, "a", "b")
	})
}

// A key that is given twice with the same limit counts once. A nested call takes no further permit.
func TestLimitedAllNested(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		limits := []guard.KeyLimit{limit("a", 3), limit("b", 5), limit("a", 3)}
		err := guard.LimitedAll(t.Context(), f.locks, limits, noWait, func(ctx context.Context) error {
			return guard.LimitedAll(ctx, f.locks, limits[1:], noWait, func(ctx context.Context) error {
				if a, b := f.held(t, "a"), f.held(t, "b"); a != 1 || b != 1 {
					t.Errorf("weights %d and %d, want 1 and 1", a, b)
				}
				return guard.LimitedAll(ctx, f.locks, []guard.KeyLimit{limit("c", 1), limit("a", 2)}, noWait, nothing)
			})
		})
		if !errors.Is(err, lockcore.ErrUpgrade) {
			t.Errorf("a nested call with a smaller limit: %v", err)
		}
		f.free(t, "a", "b", "c")
	})
}

// LimitedAll refuses bad input before it acquires a permit. The error names field, value and bound.
func TestLimitedAllBadInput(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		many := make([]guard.KeyLimit, 17)
		for i := range many {
			many[i] = limit(fmt.Sprint(i), 3)
		}
		runs := 0
		all := func(limits ...guard.KeyLimit) error {
			return guard.LimitedAll(t.Context(), f.locks, limits, noWait, fails(&runs, nil))
		}
		a := limit("a", 1)
		for want, err := range map[string]error{
			"guard: LimitedAll: locks and fn must not be nil":                      guard.LimitedAll(t.Context(), nil, []guard.KeyLimit{a}, noWait, nothing),
			"LimitedAll: locks and fn must":                                        guard.LimitedAll(t.Context(), f.locks, []guard.KeyLimit{a}, noWait, nil),
			"LimitedAll: limits has 0 different keys, must have between 1 and 16":  all(),
			"LimitedAll: limits has 17 different keys, must":                       all(many...),
			"limits[1].Key is 0 bytes long, must be between 1 and 512 bytes":       all(a, limit("", 1)),
			"limits[0].Key is 513 bytes long":                                      all(limit(strings.Repeat("x", 513), 1)),
			"LimitedAll: limits[1]: Limit.N is 0, must be between 1 and 1000000":   all(a, limit("b", 0)),
			"limits[0]: Limit.Weight is 4, must be between 0 and N, which is 3":    all(guard.KeyLimit{Key: "a", Limit: lockcore.Limit{N: 3, Weight: 4}}),
			"limits[1] has the key of limits[0] with another Limit, {N:2 Weight:0": all(a, limit("a", 2)),
			`key "a" has N 1 and a Rate, but key "b" is acquired after it`:         all(limit("b", 2), guard.KeyLimit{Key: "a", Limit: lockcore.Limit{N: 1, Rate: lockcore.Rate{N: 1}}}),
			"Terms.Lease is 1ns": guard.LimitedAll(t.Context(), f.locks, []guard.KeyLimit{a}, lockcore.Terms{Lease: 1}, nothing),
		} {
			if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if strings.HasSuffix(want, "bytes") && !errors.Is(err, lockcore.ErrKey) {
				t.Errorf("%v is no ErrKey", err)
			}
		}
		if sent := f.count.Commands(); runs != 0 || len(sent) > 0 {
			t.Errorf("%d runs, sent %v", runs, sent)
		}
		if err := all(append(many[:16:16], many[3])...); err != nil || runs != 1 {
			t.Errorf("16 keys and a duplicate: %v, %d runs", err, runs)
		}
	})
}
