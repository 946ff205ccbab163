package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

func TestSmoke(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	l, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	var n, in atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				le, err := l.Acquire(ctx, "k", lockcore.Terms{Wait: 10 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				if in.Add(1) != 1 {
					t.Error("overlap")
				}
				n.Add(1)
				in.Add(-1)
				if err := le.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Log(n.Load(), m.Keys())
	le, rec, err := l.Claim(ctx, "o", lockcore.Claim{})
	if err != nil || rec != nil {
		t.Fatal(err)
	}
	_, _, err = l.Claim(ctx, "o", lockcore.Claim{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	var b *lockcore.BusyError
	if !errors.As(err, &b) {
		t.Fatal(err)
	}
	t.Log(err)
	if err := le.Complete(ctx, []byte("x"), time.Hour); err != nil {
		t.Fatal(err)
	}
	_, rec, err = l.Claim(ctx, "o", lockcore.Claim{})
	if err != nil || string(rec.Data) != "x" {
		t.Fatal(rec, err)
	}
}
