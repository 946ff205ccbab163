package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// foreign are clients that Lockers use unchanged, and that send a command again sooner than go-redis does by default.
var foreign = map[string]func(o *redis.Options) redis.UniversalClient{
	"wrapper": func(o *redis.Options) redis.UniversalClient { return wrapper{redis.NewClient(o)} },
	"failover": func(o *redis.Options) redis.UniversalClient { // New takes it for a failover client
		addr, dial := o.Addr, o.Dialer
		o.Addr, o.Dialer = "FailoverClient", func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, addr) }
		return redis.NewClient(o)
	},
}

// Finding A5: a client that is not the Locker's own may repeat a command after a lost reply. Then no holder is told of
// a loss, and ClearSeen reports no change, that the repeat itself has caused. Renewals find real losses there too.
func TestForeignClientRepeats(t *testing.T) {
	for name, client := range foreign {
		for backoff, full := range map[time.Duration]bool{time.Millisecond: false, -1: true} {
			t.Run(fmt.Sprint(name, backoff), func(t *testing.T) {
				if full {
					testlevel.Full(t)
				}
				w, faults := realWorld(t), locktest.NewFaults(t)
				o := w.dial()
				o.Dialer, o.MinRetryBackoff, o.MaxRetryBackoff = faults.Dial(o.Dialer), backoff, time.Millisecond
				l := lockerOn(t, client(o), lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Second}})
				repeats(t, w, l, faults)
			})
		}
	}
	// A ClusterClient is copied, but the copy may still send a command again by itself.
	t.Run("cluster", func(t *testing.T) {
		testlevel.Full(t)
		c, faults := redistest.Cluster(t), locktest.NewFaults(t)
		o := c.Options()
		dial := o.Dialer
		if dial == nil {
			dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}
		o.Dialer, o.MinRetryBackoff, o.MaxRetryBackoff = faults.Dial(dial), time.Millisecond, time.Millisecond
		rdb := redis.NewClusterClient(o)
		repeats(t, nil, lockerOn(t, rdb, lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Second}}), faults)
	})
}

func repeats(t *testing.T, w *world, l *lockcore.Locker, faults *locktest.Faults) {
	t.Helper()
	ctx := t.Context()
	acquire := func() *lockcore.Lease {
		le, err := l.Acquire(ctx, "k", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		return le
	}
	once := func() *lockcore.Lease {
		le, _, err := l.Claim(ctx, "k", lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		return le
	}
	clear := func() error {
		h, err := l.Inspect(ctx, lockcore.KindOnce, "k")
		return errors.Join(err, l.Clear(ctx, lockcore.KindOnce, "k", h))
	}
	_ = acquire().Release(ctx) // from here on the faults know the scripts
	_ = once().Complete(ctx, nil, time.Minute)
	_ = clear()
	for range 5 {
		le := acquire()
		faults.CutReply(locktest.Script("release"))
		if err := le.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
		le = once()
		faults.CutReply(locktest.Script("complete"))
		if err := le.Complete(ctx, []byte("r"), time.Minute); err != nil {
			t.Errorf("complete: %v", err)
		}
		faults.CutReply(locktest.Script("clear"))
		if err := clear(); err != nil {
			t.Errorf("clear: %v", err)
		}
		le = acquire()
		next := make(chan error)
		go func() {
			le, err := l.Acquire(ctx, "k", lockcore.Terms{})
			if err == nil {
				err = le.Release(ctx)
			}
			next <- err
		}()
		time.Sleep(10 * time.Millisecond) // the batch is over: the next call's turn goes by rotate
		cut := faults.CutReply(locktest.Script("rotate"))
		if err := le.Release(ctx); err != nil {
			t.Errorf("rotate: %v", err)
		}
		if err := <-next; err != nil {
			t.Errorf("after rotate: %v", err)
		}
		cut.Remove()
	}
	if w == nil {
		return
	}
	le, err := l.Acquire(ctx, "lost", lockcore.Terms{Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w.rdb.Del(ctx, storedNames(lockcore.KindExclusive, "lost")[0])
	select {
	case <-le.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("a renewal does not find the loss")
	}
	if err := le.Release(ctx); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("release after a loss that a renewal found: %v", err)
	}
}
