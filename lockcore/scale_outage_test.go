package lockcore_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// While Redis is away, however that is, those who wait try at most twice a second each, all calls of a key together, and are served when it is
// back.
func TestScaleOutage(t *testing.T) {
	for way, goAway := range map[string]func(*locktest.Faults){
		"refused": (*locktest.Faults).Down, "black hole": (*locktest.Faults).Silence, "answers lost": (*locktest.Faults).SilenceAnswers,
	} {
		t.Run(way, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { outage(t, goAway) }) })
	}
}

func outage(t *testing.T, goAway func(*locktest.Faults)) {
	t.Helper()
	const keys, calls, seconds = 50, 20, 20
	w, faults, count := newWorld(t), locktest.NewFaults(t), new(redistest.Counter)
	var dials atomic.Int64 // none succeeds meanwhile
	o := w.dial()
	next := count.Dial(faults.Dial(o.Dialer))
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return next(ctx, network, addr)
	}
	rdb := redis.NewClient(o)
	l, err := lockcore.New(rdb, lockcore.Options{NoBatching: true})
	if err != nil {
		t.Fatal(err)
	}
	takeOnce(t, l, "warm")
	goAway(faults)
	wg := crowd(t, keys*calls, func(i int) (*lockcore.Lease, error) { return l.Acquire(t.Context(), fmt.Sprint(i%keys), long) }, nil)
	time.Sleep(time.Second)
	early := len(count.Commands()) + int(dials.Load())
	count.Reset()
	dials.Store(0)
	time.Sleep(seconds * time.Second)
	tries := len(count.Commands()) + int(dials.Load())
	faults.Heal()
	start := time.Now()
	wg.Wait()
	t.Logf("%d tries in the first second, %d in the next %d, for %d keys with %d calls each; all served %v after the end", early, tries, seconds, keys, calls, time.Since(start))
	if tries > 2*seconds*keys || tries < seconds || early > 2*keys*calls {
		t.Errorf("%d and %d tries", early, tries)
	}
	_ = l.Close(t.Context())
	_ = rdb.Close()
}
