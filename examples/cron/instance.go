package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// role is an instance before it starts.
type role struct {
	name string
	skew time.Duration
}

var cast = []role{{"A", 0}, {"B", 600 * time.Millisecond}, {"C", -600 * time.Millisecond}}

// instance has what a process has: a clock, a Locker, and a network cable to Redis.
type instance struct {
	role
	s     *stage
	cable cable
	rdb   *redis.Client
	locks *lockcore.Locker
}

func (r role) enter(s *stage, prefix string) (*instance, error) {
	in := &instance{role: r, s: s}
	in.rdb = redis.NewClient(&redis.Options{Addr: s.addr, Dialer: in.cable.dial})
	var err error
	// The lease is short to keep the story short: it must expire before another instance can run
	// the tick of a dead one.
	in.locks, err = lockcore.New(in.rdb, lockcore.Options{Prefix: prefix, Terms: lockcore.Terms{Lease: 2 * time.Second}})
	if err != nil {
		return nil, errors.Join(err, in.rdb.Close())
	}
	return in, nil
}

func (in *instance) leave() error {
	return errors.Join(in.locks.Close(context.Background()), in.rdb.Close())
}

// now is the instance's clock.
func (in *instance) now() time.Time { return time.Now().Add(in.skew) }

// heard prints the result of a tick.
func (in *instance) heard(r cronmw.Result) {
	switch {
	case r.Outcome == cronmw.TookOver:
		in.s.mu.Lock()
		in.s.taken++
		in.s.mu.Unlock()
		in.s.say("  %s took over and is done", in.name)
	case r.Outcome == cronmw.Elsewhere:
		in.s.say("  %s leaves the tick to the others", in.name)
	case r.Outcome == cronmw.NotRun && errors.Is(r.Err, context.DeadlineExceeded): // the end of the chapter
		in.s.say("  %s is stopped before the time of %s, and leaves the tick to the others", in.name, clock(r.Tick))
	case r.Err != nil:
		in.s.say("  %s: %v: %v", in.name, r.Outcome, r.Err)
	}
}

// cable is the connection to Redis. It can be cut.
type cable struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = conn.Close()
		return nil, errors.New("the cable is cut")
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// quiet drops the log lines of go-redis about failed dials: the story reports them itself.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
