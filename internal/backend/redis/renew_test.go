package redis_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/locktest"
)

// All connections end while the client has many idle ones, and go-redis learns of each only when it
// uses it, as over TLS. One Renew gets a reply nevertheless, because it sends the batch again.
func TestRenewBrokenConnections(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		faults := locktest.NewFaults(t)
		rdb := redistest.Bubble(t).Client(t, func(o *redis.Options) { o.Dialer = faults.Dial(o.Dialer) })
		b, err := redisbackend.New(rdb, redisbackend.Options{Options: backend.Options{Locker: me, Closing: make(chan struct{})}})
		if err != nil {
			t.Fatal(err)
		}
		key := b.Key(backend.KindExclusive, "k")
		renew := func() {
			rs := []backend.RenewRequest{{Key: &key, ID: next, Lease: time.Second, Retention: time.Minute}}
			if r := b.Renew(t.Context(), rs)[0]; r.Err != nil || r.Verdict != backend.VerdictLost {
				t.Errorf("verdict %v, %v; want that there is no lease", r.Verdict, r.Err)
			}
		}
		renew() // the server has the script from now on
		const idle = 16
		var held []*locktest.Fault
		var all sync.WaitGroup
		for range idle {
			held = append(held, faults.Hold(nil))
			all.Go(renew)
			synctest.Wait()
		}
		for _, f := range held {
			f.Deliver()
		}
		all.Wait()
		if n := faults.Conns(); n != idle {
			t.Fatalf("inconclusive: %d connections, want %d", n, idle)
		}
		faults.Cut()
		renew()
		b.Close()
	})
}
