package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// A trio has a primary with two replicas in sync, and another primary when the primary is killed.
func TestSentinel(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Sentinel(t)
	c, master := s.Client(t), s.Master()
	pipe := c.Pipeline() // WAIT counts what its own connection has written
	pipe.Set(t.Context(), "k", "v", 0)
	acked := pipe.Do(t.Context(), "WAIT", 2, 5000)
	if _, err := pipe.Exec(t.Context()); err != nil || acked.Val() != any(int64(2)) {
		t.Errorf("%v replicas acknowledged the write, %v", acked.Val(), err)
	}
	if replicas := s.Replicas(); len(replicas) != 2 {
		t.Errorf("%d replicas", len(replicas))
	}
	killed := time.Now()
	master.Stop()
	next := s.Failover(master)
	t.Logf("failover after %v", time.Since(killed))
	if v, err := next.Client(t).Get(t.Context(), "k").Result(); v != "v" || err != nil {
		t.Errorf("the new master has %q, %v", v, err)
	}
}

// A cluster serves every slot, moves a slot with its keys while it is in use, and gets another
// primary when one is killed.
func TestCluster(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Cluster(t)
	c, ctx := s.Client(t), t.Context()
	check(t, c.Set(ctx, "k", "v", 0).Err())
	slot := s.Slot("k")
	from := s.Master(slot)
	for _, to := range s.Masters() {
		if to == from {
			continue
		}
		if n := s.Migrate(slot, to); n != 1 || s.Master(slot) != to {
			t.Errorf("%d keys moved", n)
		}
		if v, err := c.Get(ctx, "k").Result(); v != "v" || err != nil {
			t.Errorf("after the migration: %q, %v", v, err)
		}
	}
	old := s.Master(slot)
	pipe := old.Client(t).Pipeline() // WAIT counts what its own connection has written
	pipe.Set(ctx, "k", "v", 0)
	_ = pipe.Do(ctx, "WAIT", 1, 5000)
	_, err := pipe.Exec(ctx)
	check(t, err)
	killed := time.Now()
	old.Stop()
	next := s.Failover(slot, old)
	t.Logf("failover after %v", time.Since(killed))
	if v, err := s.Client(t).Get(ctx, "k").Result(); next == old || v != "v" || err != nil {
		t.Errorf("after the failover: %q, %v", v, err)
	}
}

// A silent relay drops data in both directions, and serves new connections after Heal.
func TestProxy(t *testing.T) {
	s := redistest.Real(t)
	r := redistest.Proxy(t, s.Addr())
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + r.Port(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = c.Close() }()
	check(t, c.Set(t.Context(), "k", "v", 0).Err())
	r.Silence()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Set(ctx, "k", "lost", 0).Err(); err == nil {
		t.Error("a silent relay replied")
	}
	if v := s.Client(t).Get(t.Context(), "k").Val(); v != "v" {
		t.Errorf("%q arrived", v)
	}
	r.Heal()
	if v := c.Get(t.Context(), "k").Val(); v != "v" {
		t.Errorf("healed: %q", v)
	}
}
