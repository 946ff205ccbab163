package doctor_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// writes is a connection that calls before at each write.
type writes struct {
	net.Conn
	before func()
}

func (c writes) Write(b []byte) (int, error) {
	c.before()
	return c.Conn.Write(b)
}

// A Check whose ctx ends at any command leaves no key for longer than a minute, and returns the
// cause of ctx.
// Shows: D1
func TestCheckCutShort(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	plain := s.Client(t)
	check := func(at int64) (sent int64, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var n atomic.Int64
		rdb := s.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return writes{conn, func() {
					if n.Add(1) == at {
						cancel()
					}
				}}, err
			}
		})
		_, err = doctor.Check(ctx, rdb, lockcore.Options{})
		return n.Load(), err
	}
	all, err := check(0)
	ok(t, err)
	const trial = 25 // the last writes; most before are TIME
	if all < 2*trial {
		t.Fatalf("inconclusive: %d writes", all)
	}
	cut := 0
	for at := all - trial; at <= all; at++ {
		if _, err := check(at); errors.Is(err, context.Canceled) {
			cut++
		} else if err != nil {
			t.Errorf("ended at write %d: %v", at, err)
		}
		for _, key := range plain.Keys(t.Context(), "*").Val() {
			if ttl := plain.PTTL(t.Context(), key).Val(); ttl < 0 && ttl != -2 || ttl > time.Minute {
				t.Errorf("ended at write %d: %s stays for %v", at, key, ttl)
			}
		}
		ok(t, plain.FlushDB(t.Context()).Err())
	}
	if cut < trial/2 {
		t.Errorf("inconclusive: %d of %d were cut short", cut, trial)
	}
}
