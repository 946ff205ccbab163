package schedule_test

import (
	"errors"
	"flag"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/proof/schedule"
)

const fullCount = 20_000 // each known mistake is found by fewer schedules

var (
	seed      = flag.Uint64("seed", 0, "the only schedule to run, or with -schedules the first; 0: the fixed list of the test level")
	schedules = flag.Int("schedules", 0, "how many schedules TestSchedules runs; 0: the number of the test level")
)

// bothSteps returns a server with the scripts, and one with scripts that remove one share in a
// step.
func bothSteps() (servers [2]*schedule.Lua, err error) {
	texts := wire.Texts()
	if servers[0], err = schedule.NewLua(texts); err != nil {
		return servers, err
	}
	found := false
	for name, text := range texts {
		texts[name] = strings.Replace(text, "share_step = 500", "share_step = 1", 1)
		found = found || texts[name] != text
	}
	if !found {
		return servers, errors.New("no script has the size of a step")
	}
	servers[1], err = schedule.NewLua(texts)
	return servers, err
}

// TestSchedulesFound repeats the schedules of campaigns that found a mistake.
func TestSchedulesFound(t *testing.T) {
	servers, err := bothSteps()
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{
		5981,       // the shares of a key that all cool were kept a millisecond longer than its hash
		985,        // a request with a rate lost its place, because it had waited for something else for 5 s
		2815,       // behind an expired hold, the dead processes of the queue delayed a request with a rate for ever
		4194443320, // the first request of the queue was removed as silent, because it had sent again while another one was before it
		3407527615, // the judge took it that a request without a rate corrects the bucket after the clock was set back
	} {
		for _, s := range servers {
			if _, v := schedule.Run(s, seed); v != nil {
				t.Errorf("-args -seed %d: %v\n%s", seed, v, schedule.Trace(s, seed))
			}
		}
	}
}

// TestSchedules runs random schedules against the scripts, without -seed always the same ones.
// Shows: I3, V1, V2, V3
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
			servers, err := bothSteps()
			if err != nil {
				t.Error(err)
				return
			}
			for i := next.Add(1) - 1; i < int64(n) && !failed.Load(); i = next.Add(1) - 1 {
				s := servers[(first+uint64(i))%2]            //nolint:gosec // it is not negative
				count, v := schedule.Run(s, first+uint64(i)) //nolint:gosec // as above
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
