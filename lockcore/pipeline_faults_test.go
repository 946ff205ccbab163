package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Two crowds on a few keys, while connections are cut, answers get lost and commands come late: never two inside, tokens grow, everybody
// is served soon after the network is well again, and no key stays behind.
func TestBatchingFaults(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for n := range 4 { // after a missing answer nothing travels together for a while: so new crowds
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			disturbed(t)
		})
	}
}

func disturbed(t *testing.T) {
	t.Helper()
	w := realWorld(t)
	const keys = 16 // enough for the asks of a process to be a crowd
	var inside, last [keys]atomic.Int64
	var over atomic.Bool
	var turns atomic.Int64
	var calls sync.WaitGroup
	var all []*locktest.Faults
	for range 2 {
		l, faults, _ := w.locker(lockcore.Options{})
		all = append(all, faults)
		for range callers {
			calls.Go(func() {
				for !over.Load() {
					k := rand.IntN(keys)
					le, err := l.Acquire(t.Context(), fmt.Sprint("k", k), lockcore.Terms{Wait: lockcore.Forever})
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside[k].Add(1); n != 1 {
						t.Errorf("%d inside", n)
					}
					if before := last[k].Swap(le.Token()); before >= le.Token() {
						t.Errorf("token %d after %d", le.Token(), before)
					}
					time.Sleep(100 * time.Microsecond)
					turns.Add(1)
					inside[k].Add(-1)
					if err := le.Release(context.Background()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	struck := 0
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		var planted []*locktest.Fault
		for _, faults := range all {
			for _, plant := range faultKinds {
				planted = append(planted, plant(faults, locktest.Nth(1+rand.IntN(30), nil)))
			}
		}
		time.Sleep(500 * time.Millisecond)
		for _, f := range planted {
			if struckBy(f) {
				struck++
			}
			f.Remove() // what is held is delivered
		}
		all[rand.IntN(2)].Cut()
	}
	over.Store(true)
	ended := time.Now()
	calls.Wait()
	if d := time.Since(ended); d > 6*time.Second {
		t.Errorf("the last was served %v after the last fault", d)
	}
	t.Logf("%d turns under %d faults", turns.Load(), struck)
	if turns.Load() < 100 || struck < 15 {
		t.Error("inconclusive")
	}
	third, _, _ := w.locker(lockcore.Options{})
	for k := range keys {
		le, err := third.Acquire(t.Context(), fmt.Sprint("k", k), lockcore.Terms{Wait: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if le.Abandoned() {
			t.Error("called abandoned for nothing")
		}
		_ = le.Release(t.Context())
	}
}
