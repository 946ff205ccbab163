package asynqmw_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two processes and a holder that is no task share hot keys. Their Inspectors are slow, so that holds begin and end
// while wakers work for the key. No wake-up is lost: a task that needs its own delay, of 10 min, does not end in time.
func TestParkingWakesAll(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"NoWait": lockcore.NoWait, "200 ms": 200 * time.Millisecond} {
		t.Run(name+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wakesAll(t, wait, redistest.Bubble(t).Client) })
		})
		t.Run(name+"/real", func(t *testing.T) {
			testlevel.Full(t)
			t.Parallel()
			wakesAll(t, wait, redistest.Real(t).Client)
		})
	}
}

func wakesAll(t *testing.T, wait time.Duration, client func(testing.TB, ...func(*redis.Options)) *redis.Client) {
	t.Helper()
	w := newWorld(t, client(t))
	var keys [3]gauge
	o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: wait, Lease: 10 * time.Minute}}
	for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
		net := locktest.NewFaults(t)
		net.DelayFunc(func() time.Duration { return rand.N(10 * time.Millisecond) })
		inspect := asynq.NewInspectorFromRedisClient(client(t, func(o *redis.Options) {
			if o.Dialer == nil {
				o.Dialer = redis.NewDialer(o)
			}
			o.Dialer = net.Dial(o.Dialer)
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // dials under a mutex, on which a bubble hangs
		}))
		cfg := quick()
		cfg.Concurrency, cfg.TaskCheckInterval = 6, 10*time.Millisecond
		w.serve(asynqmw.Configure(cfg, asynqmw.Parking{Inspector: inspect}),
			asynqmw.Exclusive(locks, byPayload, o)(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
				g := &keys[t.Payload()[0]-'0']
				g.enter()
				defer g.leave()
				stubborn(rand.N(20 * time.Millisecond))
				return nil
			})))
	}
	foreign := w.locker()
	var tasks []*asynq.TaskInfo
	for i := range 90 {
		key := fmt.Sprint(rand.N(len(keys)))
		tasks = append(tasks, w.enqueue("charge", key))
		if i%10 == 0 {
			if lease, err := foreign.Acquire(context.Background(), "test:"+key, lockcore.Terms{Wait: time.Minute}); err != nil {
				t.Error(err)
			} else {
				stubborn(rand.N(30 * time.Millisecond))
				_ = lease.Release(context.Background())
			}
		}
		stubborn(rand.N(10 * time.Millisecond))
	}
	w.all(tasks)
	for i := range keys {
		if _, most := keys[i].counts(); most > 1 {
			t.Errorf("%d at once", most)
		}
	}
}
