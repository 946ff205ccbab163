// Package redistest gives tests a Redis. [Real] starts a redis-server, [Bubble] makes one in memory
// inside a testing/synctest bubble, and [Counter] counts the commands that are sent.
package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Dialer is the type of redis.Options.Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// client returns a client of o, edited, that is closed when the test ends.
func client(tb testing.TB, o *redis.Options, edit []func(*redis.Options)) *redis.Client {
	tb.Helper()
	for _, e := range edit {
		e(o)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}
