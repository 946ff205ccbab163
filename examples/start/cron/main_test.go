package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// pods runs the program as five pods, from 00:00 UTC on January 1 until the end of the test. stop
// ends one of them, as SIGTERM does.
func pods(t *testing.T, report func(ctx context.Context, pod int) error) (stop []context.CancelFunc) {
	t.Helper()
	server := locktest.NewServer(t)
	for pod := range 5 {
		stop = append(stop, start(t, server, func(ctx context.Context) error { return report(ctx, pod) }))
	}
	return stop
}

// start runs the program as one pod, until stop is called or the test ends.
func start(t *testing.T, server *locktest.Server, report func(ctx context.Context) error) (stop context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	rdb := redis.NewClient(server.Options())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, rdb, func(ctx context.Context, _ cronmw.Tick) error { return report(ctx) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = rdb.Close()
	})
	return cancel
}

// Five pods run the program for three days. Each morning the report is made once.
func TestFivePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reports []string
		pods(t, func(context.Context, int) error {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, time.Now().UTC().Format("2 Jan 15:04"))
			return nil
		})
		time.Sleep(72 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"1 Jan 06:00", "2 Jan 06:00", "3 Jan 06:00"}; !slices.Equal(reports, want) { // 07:00 in Rome
			t.Errorf("reports %v, want %v", reports, want)
		}
	})
}

// crew makes reports of ten minutes.
type crew struct {
	*testing.T
	mu     sync.Mutex
	began  []int // pods, in the order in which they began
	made   int
	inside int
}

func (c *crew) report(ctx context.Context, pod int) error {
	c.mu.Lock()
	c.began = append(c.began, pod)
	c.inside++
	if c.inside > 1 {
		c.Error("two pods make the report at the same time")
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inside--
	}()
	select {
	case <-time.After(10 * time.Minute):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.made++
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *crew) pods() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.began)
}

// The pod that makes the report is stopped. Another one makes it again, at once and not at the same
// time.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{T: t}
		stop := pods(t, c.report)
		time.Sleep(6*time.Hour + time.Minute)
		first := c.pods()[0]
		stop[first]()
		time.Sleep(time.Second)
		if began := c.pods(); len(began) != 2 || began[1] == first {
			t.Errorf("the pods %v made it; the first one was stopped", began)
		}
	})
}

// A deploy replaces all pods while one of them makes the report. A new pod completes it.
func TestAllReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := &crew{T: t}, locktest.NewServer(t)
		var stop []context.CancelFunc
		deploy := func(pod int) {
			stop = append(stop, start(t, server, func(ctx context.Context) error { return c.report(ctx, pod) }))
		}
		for pod := range 5 {
			deploy(pod)
		}
		time.Sleep(6*time.Hour + time.Minute)
		for pod := range 5 {
			deploy(5 + pod)
			time.Sleep(20 * time.Second)
			stop[pod]()
			time.Sleep(20 * time.Second)
		}
		time.Sleep(15 * time.Minute)
		began := c.pods()
		c.mu.Lock()
		defer c.mu.Unlock()
		if last := began[len(began)-1]; c.made != 1 || last < 5 {
			t.Errorf("made %d times; the pods %v began it", c.made, began)
		}
	})
}
