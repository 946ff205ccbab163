package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Two crowds on a few keys, while connections are cut, answers get lost and commands come late: never two inside, tokens grow, everybody
// is served soon after the network is well again, and no key stays behind.
func TestGroupFaults(t *testing.T) {
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
	w, control := realWorld(t), redistest.NewControl(t)
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
	more := func(n int64) {
		at := turns.Load()
		eventually(t, "more turns", func() bool { return turns.Load() >= at+n })
	}
	struck := 0
	for range 3 {
		more(50)
		var planted []*locktest.Fault
		for _, faults := range all {
			for _, plant := range faultKinds {
				planted = append(planted, plant(faults, locktest.Nth(1+rand.IntN(30), nil)))
			}
		}
		strikes := func() (n int) {
			for _, f := range planted {
				if struckBy(f) {
					n++
				}
			}
			return n
		}
		time.Sleep(500 * time.Millisecond)
		eventually(t, "half of the faults strike", func() bool { return strikes() >= len(planted)/2 })
		struck += strikes()
		for _, f := range planted {
			f.Remove() // what is held is delivered
		}
		all[rand.IntN(2)].Cut()
	}
	over.Store(true)
	ended := time.Now()
	calls.Wait()
	if d := time.Since(ended); d > 6*time.Second+control.Late(ended) {
		t.Errorf("the last was served %v after the last fault", d)
	}
	t.Logf("%d turns under %d faults", turns.Load(), struck)
	third, _, _ := w.locker(lockcore.Options{})
	for k := range keys {
		le, err := third.Acquire(t.Context(), fmt.Sprint("k", k), lockcore.Terms{Wait: 15 * time.Second}) // half of what a lease left behind would take
		if err != nil {
			t.Fatal(err)
		}
		if le.Abandoned() {
			t.Error("called abandoned for nothing")
		}
		_ = le.Release(t.Context())
	}
}
