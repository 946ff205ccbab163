package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Redis is unavailable, in each of three ways. The calls of a key together send at most two
// requests a second, and are served when Redis replies again.
// Shows: C5
func TestScaleOutage(t *testing.T) {
	for way, goAway := range map[string]func(*faulty.Network){
		"refused": (*faulty.Network).Down, "black hole": (*faulty.Network).Silence, "replies lost": (*faulty.Network).SilenceReplies,
	} {
		t.Run(way, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { outage(t, goAway) }) })
	}
}

func outage(t *testing.T, goAway func(*faulty.Network)) {
	t.Helper()
	const keys, calls, seconds = 50, 20, 20
	w, faults, tries := newWorld(t), faulty.New(t), new(tries)
	o := w.Options()
	o.Dialer, o.MaxRetries, o.ContextTimeoutEnabled = faults.Dial(o.Dialer), -1, true
	rdb := redis.NewClient(o)
	rdb.AddHook(tries)
	l, err := lockcore.New(inWrapper(rdb), lockcore.Options{}) // used unchanged, with the hook
	if err != nil {
		t.Fatal(err)
	}
	takeOnce(t, l, "warm")
	goAway(faults)
	wg := batchThreshold(t, keys*calls, func(i int) (*lockcore.Lease, error) { return l.Acquire(t.Context(), fmt.Sprint(i%keys), long) }, nil)
	tries.n.Store(0)
	time.Sleep(time.Second)
	early := tries.n.Swap(0)
	time.Sleep(seconds * time.Second)
	later := tries.n.Load()
	faults.Heal()
	start := time.Now()
	wg.Wait()
	t.Logf("%d tries in the first second, %d in the next %d, for %d keys with %d calls each; all served %v after the end", early, later, seconds, keys, calls, time.Since(start))
	if later > 2*seconds*keys || later < seconds || early > 2*keys*calls {
		t.Errorf("requests in the first second: %d; later: %d", early, later)
	}
	_ = l.Close(t.Context())
	_ = rdb.Close()
}

// tries is a hook that counts attempts to send a script, with or without a connection.
type tries struct{ n atomic.Int64 }

func (*tries) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*tries) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *tries) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}
