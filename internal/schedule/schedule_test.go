package schedule_test

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/schedule"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

const fullCount = 20_000 // each known mistake is found by fewer schedules

var (
	seed      = flag.Uint64("seed", 0, "the only schedule to run, or with -schedules the first; 0: the fixed list of the test level")
	schedules = flag.Int("schedules", 0, "how many schedules TestSchedules runs; 0: the number of the test level")
)

// TestSchedules runs random schedules against the scripts, without -seed always the same ones.
func TestSchedules(t *testing.T) {
	first, n := *seed, *schedules
	switch {
	case n > 0:
	case first > 0:
		n = 1
	default:
		n = testlevel.Pick(t, 400, 4000, fullCount)
	}
	first = max(first, 1)
	var next, commands atomic.Int64
	var failed atomic.Bool
	began := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			s, err := schedule.NewLua(redis.Texts())
			if err != nil {
				t.Error(err)
				return
			}
			for i := next.Add(1) - 1; i < int64(n) && !failed.Load(); i = next.Add(1) - 1 {
				count, v := schedule.Run(s, first+uint64(i)) //nolint:gosec // it is not negative
				if i > 0 && i%100_000 == 0 {
					t.Logf("%d schedules in %v", i, time.Since(began))
				}
				if commands.Add(int64(count)); v != nil {
					failed.Store(true)
					t.Errorf("-args -seed %d: %v\n%s", first+uint64(i), v, schedule.Trace(s, first+uint64(i))) //nolint:gosec // as above
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(began)
	t.Logf("seeds from %d: %d schedules, %d commands in %v: %.0f schedules a second", first, n, commands.Load(), took, float64(n)/took.Seconds())
}
