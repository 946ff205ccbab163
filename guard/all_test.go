package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var forever = lockcore.Terms{Wait: lockcore.Forever}

// free fails the test if f.other does not acquire each of the keys at once.
func (f *fixture) free(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := guard.Exclusive(t.Context(), f.other, key, noWait, nothing); err != nil {
			t.Error(err)
		}
	}
}

// hold acquires a key in the other process.
func (f *fixture) hold(t *testing.T, key string) *lockcore.Lease {
	t.Helper()
	lease, err := f.other.Acquire(t.Context(), key, noWait)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// 64 goroutines acquire random pairs of 8 keys, in any order. Each call gets its keys, and no two
// runs of a key overlap.
// Shows: N3
func TestAllPairs(t *testing.T) {
	pairs := func(t *testing.T, rounds int, lockers ...*lockcore.Locker) {
		t.Helper()
		var running [8]int // the race detector checks these variables too
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // no secret
				for range rounds {
					a, b := rnd.IntN(8), rnd.IntN(8) // sometimes the same
					keys := []string{fmt.Sprint("k", a), fmt.Sprint("k", b)}
					err := guard.ExclusiveAll(t.Context(), lockers[i%len(lockers)], keys, forever, func(ctx context.Context) error {
						guard.MustHold(ctx, keys[0])
						guard.MustHold(ctx, keys[1])
						for _, k := range slices.Compact([]int{a, b}) {
							if running[k]++; running[k] != 1 {
								t.Errorf("%d runs under %d", running[k], k)
							}
							defer func() { running[k]-- }()
						}
						runtime.Gosched()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	t.Run("memory", func(t *testing.T) {
		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.Background())
		pairs(t, testlevel.Pick(t, 50, 200, 2000), locks)
	})
	t.Run("real", func(t *testing.T) {
		testlevel.Campaign(t)
		server := redistest.Real(t)
		var lockers []*lockcore.Locker
		for range 4 {
			locks, err := lockcore.New(server.Client(t), lockcore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close(context.Background())
			lockers = append(lockers, locks)
		}
		pairs(t, 200, lockers...)
	})
}

// Two processes name the same keys in opposite orders. No call times out.
// Shows: N3
func TestAllOppositeOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var wg sync.WaitGroup
		runs := 0
		for range 10 {
			for l, keys := range map[*lockcore.Locker][]string{f.locks: {"a", "b"}, f.other: {"b", "a"}} {
				wg.Go(func() {
					err := guard.ExclusiveAll(t.Context(), l, keys, lockcore.Terms{Wait: time.Minute}, func(context.Context) error {
						runs++
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
		if runs != 20 {
			t.Errorf("%d runs", runs)
		}
	})
}

// The second key is busy until Wait is over. The error names the busy key, and the first key is
// free at once, also with a MinHold. Wait bounds the time for both keys.
// Shows: N4
func TestAllBusy(t *testing.T) {
	for name, tt := range map[string]struct{ wait, took time.Duration }{
		"NoWait":  {wait: lockcore.NoWait},
		"default": {took: 2 * time.Second},
		"5 s":     {wait: 5 * time.Second, took: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				if tt.took > 0 { // a part of Wait passes before the first key is acquired
					a := f.hold(t, "a")
					time.AfterFunc(1500*time.Millisecond, func() { _ = a.Release(t.Context()) })
				}
				b, began := f.hold(t, "b"), time.Now()
				runs := 0
				err := guard.ExclusiveAll(t.Context(), f.locks, []string{"c", "b", "a"}, lockcore.Terms{Wait: tt.wait, MinHold: time.Hour}, fails(&runs, nil))
				busy, ok := errors.AsType[*lockcore.BusyError](err)
				if !ok || busy.Key != "b" || runs != 0 {
					t.Errorf("%v, %d runs; want b to be busy", err, runs)
				}
				if took := time.Since(began); took < tt.took || took > tt.took+100*time.Millisecond {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				f.free(t, "a", "c")
				synctest.Wait() // for the withdrawal of the request for b
				_ = b.Release(t.Context())
				f.free(t, "b")
			})
		})
	}
}

// Wait is over when the call acquires the first key. The call tries the second key once.
// Shows: N4
func TestAllWaitIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.faults.DelayFunc(func() time.Duration { return 10 * time.Millisecond })
		runs := 0
		if err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, lockcore.Terms{Wait: time.Millisecond}, fails(&runs, nil)); err != nil || runs != 1 {
			t.Errorf("%v, %d runs; want both keys, because they are free", err, runs)
		}
		f.hold(t, "b")
		began := time.Now()
		err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, lockcore.Terms{Wait: time.Millisecond}, nothing)
		if took := time.Since(began); !errors.Is(err, lockcore.ErrBusy) || took > 200*time.Millisecond {
			t.Errorf("%v after %v, want busy without a wait", err, took)
		}
	})
}

// MinHold keeps each key after a run. MaxHold bounds each hold, and its time begins with the grant
// of that key.
// Shows: N4
func TestAllMinHoldMaxHold(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		if err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, lockcore.Terms{MinHold: time.Minute}, nothing); err != nil {
			t.Error(err)
		}
		for _, key := range []string{"a", "b"} {
			if err := guard.Exclusive(t.Context(), f.other, key, noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("%s is not cooling: %v", key, err)
			}
		}
		time.Sleep(time.Minute)
		f.free(t, "a", "b")

		f.hold(t, "b")
		terms, runs := forever, 0
		terms.MaxHold = 3 * time.Second
		began := time.Now()
		err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, terms, fails(&runs, nil))
		if took := time.Since(began); !errors.Is(err, lockcore.ErrMaxHold) || !errors.Is(err, lockcore.ErrNotRun) || runs != 0 || took != terms.MaxHold {
			t.Errorf("%v after %v, %d runs", err, took, runs)
		}
		f.free(t, "a")
	})
}

// The lease of one of the two keys ends early. The ctx of fn ends with the cause, and the error has
// the cause, also if fn returns nil.
// Shows: N4
func TestAllLost(t *testing.T) {
	for _, key := range []string{"a", "b"} {
		for name, result := range map[string]func(context.Context) error{"nil": func(context.Context) error { return nil }, "ctx": context.Context.Err} {
			t.Run(key+"/"+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, f *fixture) {
					err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, noWait, func(ctx context.Context) error {
						time.Sleep(5 * time.Second) // a lease of this age has a subscription, so it gets the notification
						if err := f.other.Revoke(t.Context(), event.KindExclusive, key); err != nil {
							t.Error(err)
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != lockcore.ErrRevoked { //nolint:errorlint // exactly that
							t.Errorf("the ctx ended with %v", cause)
						}
						return result(ctx)
					})
					if !errors.Is(err, lockcore.ErrRevoked) || errors.Is(err, lockcore.ErrNotRun) || errors.Is(err, context.Canceled) != (name == "ctx") {
						t.Errorf("got %v", err)
					}
					f.free(t, "a", "b")
				})
			})
		}
	}
}

// The lease of the first key ends while the call waits for the second one. fn does not run.
// Shows: N4
func TestAllLostBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		b, runs := f.hold(t, "b"), 0
		time.AfterFunc(5*time.Second, func() {
			if err := f.other.Revoke(t.Context(), event.KindExclusive, "a"); err != nil {
				t.Error(err)
			}
		})
		err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, forever, fails(&runs, nil))
		if !errors.Is(err, lockcore.ErrRevoked) || !errors.Is(err, lockcore.ErrNotRun) || runs != 0 {
			t.Errorf("%v, %d runs", err, runs)
		}
		synctest.Wait() // for the withdrawal of the request for b
		_ = b.Release(t.Context())
		f.free(t, "a", "b")
	})
}

// fn panics. Both keys are released, and the panic passes through ExclusiveAll.
func TestAllPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		if v := panics(func() {
			_ = guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, noWait, func(context.Context) error { panic("oh") })
		}); v != "oh" {
			t.Errorf("recovered %v", v)
		}
		f.free(t, "a", "b")
	})
}

// The Locker is closed while the call waits for the second key. The call returns ErrClosed, the
// first key is released, and Close returns no error.
// Shows: N4
func TestAllClose(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.hold(t, "b")
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { err = guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b"}, forever, nothing) })
		synctest.Wait()
		if err := f.locks.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if !errors.Is(err, lockcore.ErrClosed) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("got %v", err)
		}
		f.free(t, "a")
	})
}

// Duplicate keys count once, each key has its token, and a call for keys that ctx holds sends no
// command.
// Shows: N3
func TestAllNested(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		_ = guard.Exclusive(t.Context(), f.locks, "warm", noWait, nothing)
		before := map[string]int64{}
		for range 2 {
			f.count.Reset()
			err := guard.ExclusiveAll(t.Context(), f.locks, []string{"c", "a", "b", "a", "c"}, noWait, func(ctx context.Context) error {
				return guard.ExclusiveAll(ctx, f.locks, []string{"c", "a"}, noWait, func(inner context.Context) error {
					for _, key := range []string{"a", "b", "c"} {
						token, ok := guard.Token(inner, key)
						if outer, _ := guard.Token(ctx, key); !ok || token != outer || token <= before[key] {
							t.Errorf("%s has token %d, after %d; outside it is %d", key, token, before[key], outer)
						}
						before[key] = token
					}
					return nil
				})
			})
			if sent := f.count.Commands(); err != nil || !slices.Equal(sent, []string{"acquire", "acquire", "acquire", "release", "release", "release"}) {
				t.Errorf("%v, sent %v", err, sent)
			}
			time.Sleep(time.Second)
		}

		// A key that ctx holds stays held after a nested call finds another key busy.
		terms := lockcore.Terms{Wait: lockcore.NoWait, MinHold: time.Minute}
		err := guard.Exclusive(t.Context(), f.locks, "b", terms, func(ctx context.Context) error {
			c := f.hold(t, "c")
			if err := guard.ExclusiveAll(ctx, f.locks, []string{"a", "b", "c"}, terms, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("got %v", err)
			}
			guard.MustHold(ctx, "b")
			f.free(t, "a")
			return c.Release(t.Context())
		})
		if err != nil {
			t.Error(err)
		}
		if err := guard.Exclusive(t.Context(), f.other, "b", noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("the run of b was not kept for MinHold: %v", err)
		}
	})
}

// ExclusiveAll refuses bad input before it acquires a key. The error names the bad value.
func TestAllBadInput(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		many := make([]string, 17)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		runs := 0
		run := fails(&runs, nil)
		for want, err := range map[string]error{
			"ExclusiveAll: locks and fn":                   guard.ExclusiveAll(t.Context(), nil, []string{"a"}, noWait, run),
			"guard: ExclusiveAll: locks and fn must":       guard.ExclusiveAll(t.Context(), f.locks, []string{"a"}, noWait, nil),
			"keys has 0 different keys, must have between": guard.ExclusiveAll(t.Context(), f.locks, nil, noWait, run),
			"keys has 17 different keys":                   guard.ExclusiveAll(t.Context(), f.locks, many, noWait, run),
			"keys[1] is 0 bytes long, must be between 1":   guard.ExclusiveAll(t.Context(), f.locks, []string{"a", ""}, noWait, run),
			"keys[2] is 513 bytes long, must be between":   guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b", strings.Repeat("x", 513)}, noWait, run),
			"Terms.Lease is 1ns":                           guard.ExclusiveAll(t.Context(), f.locks, []string{"a"}, lockcore.Terms{Lease: 1}, run),
		} {
			if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if strings.HasPrefix(want, "keys[") && !errors.Is(err, lockcore.ErrKey) {
				t.Errorf("%v is no ErrKey", err)
			}
		}
		if sent := f.count.Commands(); runs != 0 || len(sent) > 0 {
			t.Errorf("%d runs, sent %v", runs, sent)
		}
		if err := guard.ExclusiveAll(t.Context(), f.locks, append(many[:16], "3"), noWait, run); err != nil || runs != 1 {
			t.Errorf("16 keys and a duplicate: %v, %d runs", err, runs)
		}
	})
}

// ForceClear ends the lease of one of several keys. The ctx of the handler ends, and the other keys
// stay held until it returns.
func TestExclusiveAllForceClear(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b", "c"}, forever, func(ctx context.Context) error {
			time.Sleep(2 * time.Second)
			h, err := f.other.Inspect(t.Context(), event.KindExclusive, "b")
			if err == nil {
				err = f.other.ForceClearEvenAlive(t.Context(), event.KindExclusive, "b", h)
			}
			if err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			for _, key := range []string{"a", "c"} {
				if err := guard.Exclusive(t.Context(), f.other, key, noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
					t.Errorf("%s: %v", key, err)
				}
			}
			f.free(t, "b")
			return nil
		})
		if !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("the call returns %v", err)
		}
		f.free(t, "a", "b", "c")
	})
}
