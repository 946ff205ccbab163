package soak_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var (
	runFor     = flag.Duration("for", 3*time.Second, "how long")
	procs      = flag.Int("procs", 3, "processes")
	goroutines = flag.Int("goroutines", 64, "goroutines in all")
	keys       = flag.Int("keys", 4, "keys")
	atLeast    = flag.Int("at-least", 300, "acquisitions below which the run is inconclusive, and fails")
)

const workerEnv = "HOLDFAST_SOAK_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(work())
	}
	os.Exit(m.Run())
}

// Processes that contend for a few keys, a tenth of the waits canceled at random: never two inside at once, tokens grow,
// nobody is stuck, and nothing is left behind.
func TestSoak(t *testing.T) {
	s := redistest.Real(t)
	total, gone, longest := map[string]int{}, 0, int64(0)
	for _, r := range runWorkers(t, s.Addr()) {
		for key, n := range r.Acquired {
			total[key] += n
		}
		gone += r.Gone
		longest = max(longest, r.LongestMS)
		for _, e := range r.Errors {
			t.Error(e)
		}
	}
	rdb, sum := s.Client(t), 0
	for key, n := range total {
		sum += n
		if got, err := rdb.Get(t.Context(), "count:"+key).Int(); err != nil || got != n {
			t.Errorf("%s: counted %d, acquired %d times (%v)", key, got, n, err)
		}
	}
	checkLeftovers(t, rdb)
	t.Logf("soak: %v, %d processes, %d goroutines, %d keys: %d acquisitions, %d waits canceled, longest wait %d ms",
		*runFor, *procs, *goroutines, *keys, sum, gone, longest)
	if sum < *atLeast || gone == 0 {
		t.Errorf("inconclusive: %d acquisitions, %d canceled waits", sum, gone)
	}
}

func runWorkers(t *testing.T, addr string) []report {
	t.Helper()
	reports := make([]report, *procs)
	var wg sync.WaitGroup
	for i := range reports {
		share := *goroutines / *procs
		if i < *goroutines%*procs {
			share++
		}
		wg.Go(func() {
			in, _ := json.Marshal(task{Addr: addr, For: *runFor, Goroutines: share, Keys: *keys})
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), workerEnv+"=1")
			cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &reports[i])
			}
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return reports
}

// checkLeftovers: no key without a TTL, nobody in line, nobody subscribed.
func checkLeftovers(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	all, err := rdb.Keys(ctx, "holdfast:*").Result()
	if err != nil || len(all) == 0 {
		t.Errorf("keys: %v, %v", all, err)
	}
	for _, key := range all {
		if ttl := rdb.PTTL(ctx, key).Val(); ttl <= 0 {
			t.Errorf("%s has no TTL", key)
		}
		if n := int64(0); strings.HasSuffix(key, ":q") {
			if n = rdb.ZCard(ctx, key).Val(); n > 0 {
				t.Errorf("%d still in line of %s", n, key)
			}
		} else if h := rdb.HGet(ctx, key, "s").Val(); h != "" {
			t.Errorf("%s is in state %q", key, h)
		}
	}
	if ch := rdb.PubSubChannels(ctx, "holdfast:*").Val(); len(ch) != 0 {
		t.Errorf("still subscribed: %v", fmt.Sprint(ch))
	}
}
