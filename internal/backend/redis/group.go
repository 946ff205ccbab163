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
	aloneCalls = 4                    // with fewer sends under way, a call is sent alone, except until groups.groupUntil
	groupTime  = 5 * time.Millisecond // how long groupUntil lies after the first wait, or after a group of more than aloneCalls
	groupWait  = time.Millisecond     // how long calls wait before a group starts beside the sends under way
	maxGroup   = 64                   // calls in a group
)

// groups sends the calls to one server. A send is one call alone, on its own connection, or one
// group of calls, in one write. While few sends are under way, each call is sent alone. With more,
// calls wait. The end of a send starts a group of all calls that wait, up to maxGroup. On a single
// server deal.lua does the plain releases and acquires of a group.
//
// A call is sent alone, is in waiting, or is in one group. mu decides the race between a call whose
// ctx or bound ends and the group that takes it from waiting: a call that is still in waiting is
// removed and never sent. The goroutine of a group writes the replies of its calls and then signals
// done. A call whose caller left after it was taken is not reused, because its group still writes
// to it.
//
// Calls wait only while a send is under way. A timer starts another group after groupWait, so a
// slow reply delays only the calls of its own send.
type groups struct {
	useDeal bool // a single server: in a cluster one script cannot have keys of several slots
	report  func(calls int, waited time.Duration)

	mu           sync.Mutex
	server       redis.UniversalClient // *redis.Client
	waiting      []*call
	waitingSince time.Time // when waiting was last empty and got a call
	underWay     int       // sends: calls alone, and groups
	groupUntil   time.Time // until then aloneCalls does not apply, only the limit of roundTrips
	roundTrips   roundTrips
	timer        *time.Timer // of groupWait
	reusable     []*call
	stopped      bool
	senders      sync.WaitGroup // goroutines of sendGroup
}

// call is one call that waits for a group, or is in one.
type call struct {
	s       *script
	list    []any
	end     time.Time // of the send
	useDeal bool      // deal.lua may do it
	terms   string    // for deal.lua, of an acquire

	taken bool // guarded by groups.mu: no longer in waiting, a group or stop has it
	done  chan struct{}
	timer *time.Timer // fires at end

	// Written before done.
	reply          any
	err            error
	retryOwnScript bool // deal.lua did nothing for it: send its own script
	retryAlone     bool // it was not executed: send it alone
}

// newGroups returns the groups of a server.
func newGroups(useDeal bool, report func(calls int, waited time.Duration)) *groups {
	g := &groups{useDeal: useDeal, report: report}
	g.timer = time.AfterFunc(groupWait, g.startBeside) // at first no call waits
	return g
}

// eval sends a script and waits for its reply. A group goes to server. A call that is sent alone
// goes through on, which may be the client of a cluster.
func (g *groups) eval(ctx context.Context, server, on redis.UniversalClient, s *script, list []any, now time.Time) (any, error) {
	for useDeal := g.useDeal && s.canDeal(list); ; useDeal, now = false, time.Now() {
		c := g.add(ctx, server, s, list, useDeal, now)
		if c == nil {
			return g.sendAlone(ctx, now, on, s, list)
		}
		if err := g.wait(ctx, c); err != nil {
			return nil, err
		}
		reply, err, retryOwnScript, retryAlone := c.reply, c.err, c.retryOwnScript, c.retryAlone
		g.reuse(c)
		switch {
		case retryAlone:
			return eval(ctx, on, s, list)
		case !retryOwnScript:
			return reply, err
		}
		list[plainArg] = &no
	}
}

// sendAlone sends a call on its own connection, after add has counted it.
func (g *groups) sendAlone(ctx context.Context, now time.Time, on redis.UniversalClient, s *script, list []any) (reply any, err error) {
	defer func() { g.endAlone(now, err) }()
	return eval(ctx, on, s, list)
}

// add adds a call to waiting. If the call must be sent alone, add counts it and returns nil, and
// the caller calls endAlone after the send.
func (g *groups) add(ctx context.Context, server redis.UniversalClient, s *script, list []any, useDeal bool, now time.Time) *call {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.roundTrips.limit()
	if !now.Before(g.groupUntil) {
		limit = max(limit, aloneCalls)
	}
	if g.stopped || g.underWay < limit && len(g.waiting) == 0 {
		g.underWay++
		return nil
	}
	g.server = server // in a cluster go-redis may have made a new client for the same address
	c := g.newCallLocked()
	c.s, c.list, c.useDeal = s, list, useDeal
	c.end, _ = ctx.Deadline() // ctx is a limited, which always has a deadline
	c.timer.Reset(c.end.Sub(now))
	if useDeal && s == acquireScript {
		c.terms = termsOf(list)
	}
	if len(g.waiting) == 0 {
		g.waitingSince = now
		g.timer.Reset(groupWait) //planted:group-beside
		if !now.Before(g.groupUntil) {
			g.groupUntil = now.Add(groupTime)
		}
	}
	g.waiting = append(g.waiting, c)
	if len(g.waiting) == maxGroup && g.underWay < ownPoolSize {
		g.startGroupLocked()
	}
	return c
}

// wait waits for the reply of c, its end, or the end of ctx. After an error the caller must not use
// c, because a group may write to it.
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

// endAlone ends the send of a call alone.
func (g *groups) endAlone(sent time.Time, err error) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.roundTrips.add(now, now.Sub(sent))
	}
	g.endSendLocked()
}

// endSendLocked ends a send. If calls wait, a group takes its place.
func (g *groups) endSendLocked() {
	g.underWay--
	if len(g.waiting) > 0 {
		g.startGroupLocked()
	}
}

// startBeside starts a group beside the sends under way, if calls wait.
func (g *groups) startBeside() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 && g.underWay < ownPoolSize {
		g.startGroupLocked()
	}
}

// startGroupLocked sends the next group on its own goroutine.
func (g *groups) startGroupLocked() {
	g.underWay++
	group := g.takeGroupLocked()
	g.senders.Go(func() { g.sendGroup(group) })
}

// group is a number of calls that are sent in one write.
type group struct {
	server       redis.UniversalClient
	calls        []*call
	waitingSince time.Time // groups.waitingSince when the group was taken
	failed       bool      // a command of it failed, so its time is not added to roundTrips
}

// sendGroup sends a group and signals its calls.
func (g *groups) sendGroup(group *group) {
	sent := time.Now()
	group.send()
	now := time.Now()
	for _, c := range group.calls {
		c.done <- struct{}{}
	}
	g.mu.Lock()
	if !group.failed {
		g.roundTrips.add(now, now.Sub(sent))
	}
	if len(group.calls) > aloneCalls {
		g.groupUntil = now.Add(groupTime)
	}
	g.endSendLocked()
	g.mu.Unlock()
	g.report(len(group.calls), sent.Sub(group.waitingSince)) // last, because the Observer may block
}

// takeGroupLocked takes the next group from waiting. If more than maxGroup calls wait, releases go
// first.
func (g *groups) takeGroupLocked() *group {
	next := &group{server: g.server, calls: g.waiting, waitingSince: g.waitingSince}
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

// newCallLocked returns a new call, or one that was given to reuse.
func (g *groups) newCallLocked() *call {
	n := len(g.reusable)
	if n == 0 {
		return &call{done: make(chan struct{}, 1), timer: time.NewTimer(callTimeout)}
	}
	c := g.reusable[n-1]
	g.reusable = g.reusable[:n-1]
	return c
}

// reuse makes a call available to newCallLocked after its caller has read the reply.
func (g *groups) reuse(c *call) {
	c.timer.Stop()
	*c = call{done: c.done, timer: c.timer}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reusable = append(g.reusable, c)
}

// stop fails the calls in waiting. Each later call is sent alone. The groups under way end when
// their connections are closed.
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
