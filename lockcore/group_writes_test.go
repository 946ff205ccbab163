package lockcore_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/resp"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// scribe notes how many calls each write carries, set-up excepted.
type scribe struct {
	names resp.Names
	mu    sync.Mutex
	most  int
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
		if args := resp.Args(rest[:size]); !resp.Handshake(args) {
			n++
			if c.s.names.Of(c.s.names.Script(args)) == "deal" {
				keys, _ := strconv.Atoi(args[2])
				n += keys - 1
			}
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

// What a crowd sends at the same time travels together; alone, or with NoBatching, every call travels by itself.
func TestGroup(t *testing.T) {
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
		s.Client(t).ScriptFlush(t.Context()) // the scribe learns the names of scripts from their source
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
			t.Errorf("%s: up to %d calls in a write", name, seen.most)
		}
	}
}
