package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// foreign are clients that a Locker uses unchanged, with a shorter backoff between retries than the
// default of go-redis.
var foreign = map[string]func(o *redis.Options) redis.UniversalClient{
	"wrapper": func(o *redis.Options) redis.UniversalClient { return inWrapper(redis.NewClient(o)) },
	"failover": func(o *redis.Options) redis.UniversalClient { // New recognizes a failover client by this address
		addr, dial := o.Addr, o.Dialer
		o.Addr, o.Dialer = "FailoverClient", func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, addr) }
		return redis.NewClient(o)
	},
}

// The client of the user may repeat a command after a lost reply. The repeat causes neither ErrLost
// for a holder nor a reported change in Clear. Renewals still find real losses.
// Shows: L14
func TestForeignClientRepeats(t *testing.T) {
	for name, client := range foreign {
		for backoff, full := range map[time.Duration]bool{time.Millisecond: false, -1: true} {
			t.Run(fmt.Sprint(name, backoff), func(t *testing.T) {
				if full {
					testlevel.Full(t)
				}
				w, faults := realWorld(t), faulty.New(t)
				o := w.Options()
				o.Dialer, o.MinRetryBackoff, o.MaxRetryBackoff = faults.Dial(o.Dialer), backoff, time.Millisecond
				l := lockerOn(t, client(o), lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Second}})
				repeats(t, w, l, faults)
			})
		}
	}
	// New copies a ClusterClient, but the copy may still repeat a command by itself.
	t.Run("cluster", func(t *testing.T) {
		testlevel.Full(t)
		c, faults := redistest.Cluster(t), faulty.New(t)
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

func repeats(t *testing.T, w *world, l *lockcore.Locker, faults *faulty.Network) {
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
		h, err := l.Inspect(ctx, event.KindOnce, "k")
		return errors.Join(err, l.ClearIfUnchanged(ctx, event.KindOnce, "k", h))
	}
	_ = acquire().Release(ctx) // after this the faults know the names of the scripts
	_ = once().Complete(ctx, nil, time.Minute)
	_ = clear()
	for range 5 {
		le := acquire()
		faults.CutReply(faulty.Script("release"))
		if err := le.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
		le = once()
		faults.CutReply(faulty.Script("complete"))
		if err := le.Complete(ctx, []byte("r"), time.Minute); err != nil {
			t.Errorf("complete: %v", err)
		}
		faults.CutReply(faulty.Script("clear"))
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
		time.Sleep(10 * time.Millisecond) // the batch has ended: rotate.lua grants the key to the next call
		cut := faults.CutReply(faulty.Script("rotate"))
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
	w.Redis.Del(ctx, storedNames(event.KindExclusive, "lost")[0])
	select {
	case <-le.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("no renewal found the loss")
	}
	if err := le.Release(ctx); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("release after a loss that a renewal found: %v, want ErrLost", err)
	}
}
