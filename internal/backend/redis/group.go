package redis

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	aloneCalls = 4                    // up to this many calls under way, each has its own connection
	groupTime  = 5 * time.Millisecond // after this time without a group of more than aloneCalls, calls have their own connections again
	groupWait  = time.Millisecond     // a call waits this long for those under way, then a group starts beside them
	maxGroup   = 64                   // calls in a group
)

// groups sends the calls to one server. While few calls are under way, each is sent alone, on a
// connection of its own. With more, a call waits until the group under way has its reply, and then
// all that wait are sent as the next group, in one write. On a single server one script does the
// plain releases and acquires of a group.
//
// A call is in one place: sent alone by its own goroutine, in waiting, or in one group. mu decides
// between a call that leaves waiting, because its ctx or its bound ended, and the group that takes
// it. Then the goroutine of the group writes the reply, and closes with done. A call that has left
// its group is never used again.
//
// If land finds calls that wait, it starts the next group, so calls wait only while a command is
// under way. After groupWait a timer starts another group, so one slow reply delays only the calls
// of its own group.
type groups struct {
	deals  bool // one script may have many keys
	report func(calls int, waited time.Duration)

	mu       sync.Mutex
	server   redis.UniversalClient // *redis.Client
	waiting  []*call
	since    time.Time // when waiting[0] began to wait
	underWay int       // calls sent alone, and groups
	busy     time.Time // until then, calls wait for a group even if fewer than aloneCalls are under way
	trips    trips
	timer    *time.Timer
	spare    []*call // for the next calls
	stopped  bool
	running  sync.WaitGroup // goroutines of groups
}

// call is one call that waits for a group, or is in one.
type call struct {
	s     *script
	list  []any
	end   time.Time
	deal  bool   // deal.lua may do it
	terms string // of a deal.lua that acquires

	taken bool // guarded by groups.mu: a group has it
	done  chan struct{}
	timer *time.Timer

	// Written before done.
	reply any
	err   error
	again bool // nothing was done: send it without deal.lua
	alone bool // nothing was done: send it alone
}

// newGroups returns the groups of a server.
func newGroups(deals bool, report func(calls int, waited time.Duration)) *groups {
	g := &groups{deals: deals, report: report}
	g.timer = time.AfterFunc(groupWait, g.late) // its first call finds nothing
	return g
}

// eval sends a script to server, or to the server behind on if it is sent alone, and waits for its
// reply.
func (g *groups) eval(ctx context.Context, server, on redis.UniversalClient, s *script, list []any, now time.Time) (any, error) {
	for deal := g.deals && s.deals(list); ; deal, now = false, time.Now() {
		c := g.join(ctx, server, s, list, deal, now)
		if c == nil {
			return g.alone(ctx, now, on, s, list)
		}
		if err := g.wait(ctx, c); err != nil {
			return nil, err
		}
		reply, err, again, alone := c.reply, c.err, c.again, c.alone
		g.reuse(c)
		switch {
		case alone:
			return eval(ctx, on, s, list)
		case !again:
			return reply, err
		}
		list[plainArg] = &no
	}
}

// alone sends a call on its own connection. The call was counted by join.
func (g *groups) alone(ctx context.Context, now time.Time, on redis.UniversalClient, s *script, list []any) (reply any, err error) {
	defer func() { g.land(now, err) }()
	return eval(ctx, on, s, list)
}

// join returns nil if the call is to be sent alone. Then land must follow.
func (g *groups) join(ctx context.Context, server redis.UniversalClient, s *script, list []any, deal bool, now time.Time) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.trips.limit()
	if !now.Before(g.busy) {
		limit = max(limit, aloneCalls)
	}
	if g.stopped || g.underWay < limit && len(g.waiting) == 0 {
		g.underWay++
		return nil
	}
	g.server = server // of a cluster: go-redis may have made a new client for the same address
	c := g.callLocked()
	c.s, c.list, c.deal = s, list, deal
	c.end, _ = ctx.Deadline() // a limited always has one
	c.timer.Reset(c.end.Sub(now))
	if deal && s == acquireScript {
		c.terms = termsOf(list)
	}
	if len(g.waiting) == 0 {
		g.since = now
		g.timer.Reset(groupWait) //planted:group-beside
		if !now.Before(g.busy) {
			g.busy = now.Add(groupTime)
		}
	}
	g.waiting = append(g.waiting, c)
	if len(g.waiting) == maxGroup && g.underWay < ownPoolSize {
		g.startLocked()
	}
	return c
}

// wait waits until the reply of c, its end, or the end of ctx. After an error c belongs to its group.
func (g *groups) wait(ctx context.Context, c *call) error {
	var err error
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.timer.C:
		err = os.ErrDeadlineExceeded
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.taken { //planted:leaves-the-group
		i := slices.Index(g.waiting, c)
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return &notSentError{err}
	}
	select {
	case <-c.done: // the reply came first
		return nil
	default:
		return err
	}
}

// land ends a call that was sent alone. If calls wait, the next group takes its place.
func (g *groups) land(sent time.Time, err error) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.trips.add(now, now.Sub(sent))
	}
	g.nextLocked()
}

// nextLocked starts a group in place of a call or a group that has its reply.
func (g *groups) nextLocked() {
	g.underWay--
	if len(g.waiting) > 0 {
		g.startLocked()
	}
}

// late starts another group beside those under way.
func (g *groups) late() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 && g.underWay < ownPoolSize {
		g.startLocked()
	}
}

func (g *groups) startLocked() {
	g.underWay++
	group := g.takeLocked()
	g.running.Go(func() { g.run(group) })
}

// group is a group of calls.
type group struct {
	server redis.UniversalClient
	calls  []*call
	since  time.Time // when the first call began to wait
	failed bool      // at least one command
}

// run sends a group, and starts the next one if calls wait.
func (g *groups) run(group *group) {
	sent := time.Now()
	group.send()
	now := time.Now()
	for _, c := range group.calls {
		c.done <- struct{}{}
	}
	g.mu.Lock()
	if !group.failed {
		g.trips.add(now, now.Sub(sent))
	}
	if len(group.calls) > aloneCalls {
		g.busy = now.Add(groupTime)
	}
	g.nextLocked()
	g.mu.Unlock()
	g.report(len(group.calls), sent.Sub(group.since)) // last, because it is user code
}

// takeLocked takes the next group from waiting. If not all fit, releases go first.
func (g *groups) takeLocked() *group {
	next := &group{server: g.server, calls: g.waiting, since: g.since}
	if len(next.calls) > maxGroup {
		slices.SortStableFunc(next.calls, func(a, b *call) int { return a.rank() - b.rank() })
		g.waiting = slices.Clone(next.calls[maxGroup:])
		next.calls = next.calls[:maxGroup]
		g.timer.Reset(groupWait)
	} else {
		g.waiting = make([]*call, 0, maxGroup)
		g.timer.Stop()
	}
	for _, c := range next.calls {
		c.taken = true
	}
	return next
}

// rank orders releases before other calls.
func (c *call) rank() int {
	if c.s == releaseScript || c.s == rotateScript {
		return 0
	}
	return 1
}

// callLocked returns a call that is not in use.
func (g *groups) callLocked() *call {
	n := len(g.spare)
	if n == 0 {
		return &call{done: make(chan struct{}, 1), timer: time.NewTimer(callTimeout)}
	}
	c := g.spare[n-1]
	g.spare = g.spare[:n-1]
	return c
}

// reuse takes back a call whose reply was read.
func (g *groups) reuse(c *call) {
	c.timer.Stop()
	*c = call{done: c.done, timer: c.timer}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spare = append(g.spare, c)
}

// stop fails the calls that wait. From then on each call is sent alone. The groups under way end
// with their connections.
func (g *groups) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
	for _, c := range g.waiting {
		c.taken, c.err = true, &notSentError{errCutOff}
		c.done <- struct{}{}
	}
	g.waiting = nil
}
