package sim_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/sim"
)

// I1, I3, I4, I5, I6, I8, I12, I13 and I14 hold on a majority of 3 or 5 servers: with odd seeds while
// a minority of them fails at a time, and with even seeds while any of them do.
// Shows: I1, I4, P7
func TestSimQuorum(t *testing.T) {
	first, n := max(*seed, 1), (*seeds+3)/4
	if n == 0 && *seed > 0 {
		n = 1
	} else if n == 0 {
		n = testlevel.Pick(t, 1, 4, 10)
	}
	c := sim.Config{Lockers: *procs, Minutes: testlevel.Pick(t, 1, 4, 4)}
	var mu sync.Mutex
	var total sim.Stats
	t.Run("seeds", func(t *testing.T) {
		for s := first; s < first+uint64(n); s++ {
			c := c
			c.Seed, c.Servers, c.Majority = s, []int{3, 5}[s/2%2], s%2 == 0
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				t.Parallel()
				sim.Run(t, c, func(stats sim.Stats) {
					mu.Lock()
					defer mu.Unlock()
					total.Add(stats)
				})
			})
		}
	})
	t.Logf("%d seeds: %v", n, total)
}
