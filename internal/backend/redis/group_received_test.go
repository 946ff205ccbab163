package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// newBackend returns a Backend that is closed when the test ends.
func newBackend(t *testing.T, rdb redis.UniversalClient) *redisbackend.Backend {
	t.Helper()
	b, err := redisbackend.New(rdb, redisbackend.Options{Options: backend.Options{Locker: me, Closing: make(chan struct{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Received of a reply is not before its grant, also for a call that is sent again alone because the
// server did not have its script. In the second round the server has the script, and Received is
// set.
func TestGroupReceived(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		faults := faulty.New(t)
		faults.Delay(10 * time.Millisecond)
		rdb := redistest.Bubble(t).Client(t, func(o *redis.Options) { o.Dialer = faults.Dial(o.Dialer) })
		b := newBackend(t, rdb)
		for round := range 2 {
			var calls sync.WaitGroup
			for i := range 32 {
				calls.Go(func() {
					key := backend.Key{Kind: backend.KindOnce, Stored: [2]string{fmt.Sprint("key", round, i), fmt.Sprint("queue", round, i)}}
					a, err := b.Acquire(context.Background(), backend.AcquireRequest{
						Key: &key, ID: mine, Lease: lease, Retention: retention, First: true, Timeout: time.Second,
					})
					switch {
					case err != nil || a.Outcome != backend.OutcomeGranted:
						t.Errorf("the reply is %+v, %v", a, err)
					case a.Received.IsZero() && round > 0:
						t.Error("Received is zero")
					case !a.Received.IsZero() && a.Received.Before(a.GrantedAt):
						t.Errorf("Received is %v before the grant", a.GrantedAt.Sub(a.Received))
					}
				})
				synctest.Wait() // the first calls are sent alone
			}
			calls.Wait()
		}
	})
}
