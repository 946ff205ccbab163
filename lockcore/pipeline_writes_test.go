package lockcore_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/resp"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// scribe notes how many commands each write carries, set-up excepted.
type scribe struct {
	mu   sync.Mutex
	most int
}

type scribedConn struct {
	net.Conn
	s *scribe
}

func (c scribedConn) Write(b []byte) (int, error) {
	n := 0
	for rest := b; len(rest) > 0; {
		size, _, ok := resp.Split(rest)
		if !ok {
			break
		}
		if !resp.Handshake(resp.Args(rest[:size])) {
			n++
		}
		rest = rest[size:]
	}
	c.s.mu.Lock()
	c.s.most = max(c.s.most, n)
	c.s.mu.Unlock()
	return c.Conn.Write(b)
}

func (s *scribe) dial(next redistest.Dialer) redistest.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		return scribedConn{c, s}, err
	}
}

// What a crowd sends at the same time travels together; alone, or with NoBatching, every command travels by itself.
func TestBatching(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	for name, test := range map[string]struct {
		off, crowded, together bool
	}{
		"crowd":      {crowded: true, together: true},
		"alone":      {},
		"NoBatching": {off: true, crowded: true},
	} {
		var seen scribe
		rdb := s.Client(t, func(o *redis.Options) { o.Dialer = seen.dial(o.Dialer) })
		l, err := lockcore.New(rdb, lockcore.Options{NoBatching: test.off})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			call := lockAndUnlock(t.Context(), l, long)
			if !test.crowded {
				err = call(0)
			} else {
				errs, _ := atOnce(call)
				err = errors.Join(errs...)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if together := seen.most > 1; together != test.together {
			t.Errorf("%s: up to %d commands in a write", name, seen.most)
		}
	}
}
