package redis_test

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

// writeCounter counts the calls in each write, except those of the handshake.
type writeCounter struct {
	names resp.Names
	mu    sync.Mutex
	most  int // calls in one write
}

type countedConn struct {
	net.Conn
	s *writeCounter
}

func (c countedConn) Write(b []byte) (int, error) {
	n := 0
	for rest := b; len(rest) > 0; {
		size, _, ok := resp.Split(rest)
		if !ok {
			break
		}
		if args := resp.Args(rest[:size]); !resp.Handshake(args) {
			n++
			if c.s.names.Of(c.s.names.Script(args)) == "grant_many" {
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

func (s *writeCounter) dial(next redistest.Dialer) redistest.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		return countedConn{c, s}, err
	}
}

// Calls that are made at the same time share writes. A single call, and each call with NoGroups,
// has its own write.
// Shows: R4
func TestGroup(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	for name, test := range map[string]struct {
		noGroups, concurrent, together bool
	}{
		"concurrent": {concurrent: true, together: true},
		"one by one": {},
		"NoGroups":   {noGroups: true, concurrent: true},
	} {
		var seen writeCounter
		s.Client(t).ScriptFlush(t.Context()) // the counter reads the names of scripts from their source
		rdb := s.Client(t, func(o *redis.Options) { o.Dialer = seen.dial(o.Dialer) })
		l, err := lockcore.New(rdb, lockcore.Options{NoGroups: test.noGroups})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			call := lockAndUnlock(t.Context(), l, long)
			if !test.concurrent {
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
