package locktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
	"github.com/holdfast-go/holdfast/lockcore"
)

// closeTime is how long running handlers may take to release their leases after a test.
const closeTime = time.Second

// New returns a Locker in memory with default options. It is closed when the test ends. A lease
// that is not released within 1 s after that fails the test and its ctx is canceled. The error
// names its key and the line that acquired it. Use [NewServer] for several Lockers that exclude
// each other, and for faults.
func New(tb testing.TB) *lockcore.Locker {
	tb.Helper()
	return open(tb, nil, func(o event.Observer) (*lockcore.Locker, error) {
		return lockcore.NewMemory(lockcore.MemoryOptions{Observer: o})
	})
}

// open makes a Locker that is closed when the test ends.
func open(tb testing.TB, next event.Observer, newLocker func(event.Observer) (*lockcore.Locker, error)) *lockcore.Locker {
	tb.Helper()
	leases := &unreleased{next: next, calls: map[*call]bool{}}
	locks, err := newLocker(leases)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			tb.Error(fmt.Sprint(err, leases))
		}
	})
	return locks
}

// Server is a Redis inside the process that several Lockers can share. It is closed when its test
// ends.
type Server struct {
	tb    testing.TB
	redis *miniredis.Miniredis
	serve *pipe.Server // of redis
}

// NewServer returns an empty Redis.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	s := &Server{tb: tb, redis: m, serve: pipe.NewServer(m)}
	tb.Cleanup(s.serve.Close)
	return s
}

// Options returns fresh options for a client of s. Wrap their Dialer to put [Faults] in between.
func (s *Server) Options() *redis.Options { return s.serve.Options() }

// Locker returns a new Locker on s, which acts as another process. Its connections pass through
// faults, if given. It is closed when the test ends, like the one of [New].
func (s *Server) Locker(o lockcore.Options, faults ...*Faults) *lockcore.Locker {
	s.tb.Helper()
	co := s.Options()
	for _, f := range faults {
		co.Dialer = f.network.Dial(co.Dialer)
	}
	rdb := redis.NewClient(co)
	s.tb.Cleanup(func() { _ = rdb.Close() }) // the Locker is closed before
	return open(s.tb, o.Observer, func(leases event.Observer) (*lockcore.Locker, error) {
		o.Observer = leases
		return lockcore.New(rdb, o)
	})
}
