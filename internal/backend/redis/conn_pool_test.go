package redis_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// MaxActiveConns of the client bounds only the client itself, not the clients of the Locker.
func TestConnMaxActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		faults, o := faulty.New(t), redistest.Bubble(t).Options()
		dial := o.Dialer
		o.Dialer = faults.Dial(func(ctx context.Context, network, addr string) (net.Conn, error) {
			open.Add(1)
			return dial(ctx, network, addr)
		})
		o.MaxActiveConns, o.MaintNotificationsConfig = 1, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		rdb := redis.NewClient(o)
		defer func() { _ = rdb.Close() }()
		l := lockerOn(t, rdb, lockcore.Options{NoGroups: true})
		faults.Delay(10 * time.Millisecond)
		defer faults.Delay(0)
		const calls = 4
		atOnce := func(call func(key string) error) (opened int64, failed int) {
			before := open.Load()
			errs := make(chan error, calls)
			for i := range calls {
				go func() { errs <- call(fmt.Sprint(i)) }()
			}
			for range calls {
				if <-errs != nil {
					failed++
				}
			}
			return open.Load() - before, failed
		}
		if _, failed := atOnce(func(key string) error { return rdb.Set(t.Context(), key, 1, 0).Err() }); failed == 0 { // go-redis may also dial, and then close the connection
			t.Error("no call of the client failed")
		}
		opened, failed := atOnce(func(key string) error {
			le, err := l.Acquire(t.Context(), key, noWait)
			if err != nil {
				return err
			}
			return le.Release(t.Context())
		})
		if opened < calls || failed != 0 {
			t.Errorf("the Locker opened %d connections, and %d of its calls failed", opened, failed)
		}
	})
}
