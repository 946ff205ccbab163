package sim_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/sim"
)

var (
	seeds = flag.Int("seeds", 0, "number of seeds that TestSim runs, and TestSimQuorum a quarter of them; 0: 40 at level campaign")
	procs = flag.Int("procs", 0, "number of processes; 0: 1, 3, 4 or 8, by the seed, or 3 with several servers")
	seed  = flag.Uint64("seed", 0, "the only seed, or with -seeds the first")
)

func TestMain(m *testing.M) {
	logging.Disable() // the tests cause faults
	goleak.VerifyTestMain(m)
}

// I1, I3 (tokens grow), I4, I5, I6, I8, I9, I10, I12, I13 and I14 hold for several processes over a
// faulty network.
// Shows: I1, I4, I5, I6, I8, I9, I10, I12, I13, W1, W8, S1, S3, S4, S7, P1
func TestSim(t *testing.T) {
	first, n := max(*seed, 1), *seeds
	switch {
	case n > 0:
	case *seed > 0:
		n = 1
	default:
		testlevel.Campaign(t)
		n = 40
	}
	var mu sync.Mutex
	var total sim.Stats
	t.Run("seeds", func(t *testing.T) {
		for s := first; s < first+uint64(n); s++ {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				t.Parallel()
				sim.Run(t, sim.Config{Seed: s, Lockers: *procs}, func(stats sim.Stats) {
					mu.Lock()
					defer mu.Unlock()
					total.Add(stats)
				})
			})
		}
	})
	t.Logf("%d seeds: %v", n, total)
}
