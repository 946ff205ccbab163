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
	endPause   = time.Millisecond     // between two looks for calls whose time has ended
	maxReports = 1024                 // groups that wait for the Observer; more are not reported
	maxGroup   = 64                   // calls in a group
)

// groups sends the calls to one server. A send is one call alone, on its own connection, or one
// group of calls, in one write. While few sends are under way, each call is sent alone. With more,
// calls wait. The end of a send starts a group of all calls that wait, up to maxGroup. On a single
// server deal.lua does the plain releases and acquires of a group.
//
// A call is sent alone, is in waiting, or is in one group. mu decides the race between the end of a
// call, by ctx or by time, and the group that takes it from waiting: a call that leaves before is
// never sent. mu also decides the race between the end of a call and the end of its group: a call
// is finished, or it has left. Its caller gets one signal if the call is finished or its time has
// ended. A call that has left is not reused, because its group still writes to it.
//
// Calls wait only while a send is under way. A timer starts another group after groupWait, so a
// slow reply delays no calls but those of its send.
type groups struct {
	report func(calls int, waited time.Duration) // may be nil

	mu         sync.Mutex
	useDeal    bool                  // a single server: in a cluster one script cannot have keys of several slots
	dealInFull bool                  // the server does not have deal.lua
	server     redis.UniversalClient // *redis.Client
	waiting    waitingCalls
	underWay   int       // sends: calls alone, and groups
	groupUntil time.Time // until then aloneCalls does not apply, only the limit of roundTrips
	roundTrips roundTrips
	timer      *time.Timer // of groupWait
	endTimer   *time.Timer // of the calls, set to nextEnd
	nextEnd    time.Time   // no later than the end of any call in waiting or sending; zero if endTimer is not set
	sending    []*group    // the groups under way
	reports    []sentGroup // for report, at most maxReports
	reporting  bool        // a goroutine calls report
	stopped    bool
	senders    sync.WaitGroup // goroutines of sendGroups and reportAll

	calls sync.Pool // of *call, for reuse; not global, because done belongs to the synctest bubble of the Locker
}

// call is one call that waits for a group, or is in one.
type call struct {
	s       *script
	list    []any
	end     time.Time // of the send
	useDeal bool      // deal.lua may do it
	terms   holdTerms // for deal.lua, of an acquire

	since time.Time // when it was added

	// Guarded by groups.mu. An unsent call stays in waiting until its turn.
	taken    bool  // a group or stop has it
	finished bool  // the group or stop is done with it
	left     error // why it ended before that
	unsent   bool  // it has left before it was taken

	done chan struct{}

	// Written before done, by the group or stop.
	reply      any
	err        error
	retry      bool // it was not executed: send it again, with its own script unless useDeal is set
	retryAlone bool // it was not executed: send it alone
	received   time.Time
}

// newGroups returns the groups of a server.
func newGroups(useDeal bool, report func(calls int, waited time.Duration)) *groups {
	g := &groups{useDeal: useDeal, report: report}
	g.timer = time.AfterFunc(groupWait, g.startBeside) // at first no call waits
	g.endTimer = time.AfterFunc(callTimeout, g.endOverdue)
	return g
}

// eval sends a script and waits for its reply. A group goes to server. A call that is sent alone
// goes through on, which may be the client of a cluster.
func (g *groups) eval(ctx *limited, server, on redis.UniversalClient, s *script, list []any, now time.Time) (any, error) {
	for useDeal := s.canDeal(list); ; now = time.Now() {
		c := g.add(ctx, server, s, list, useDeal, now)
		if c == nil {
			return g.sendAlone(ctx, now, on, s, list)
		}
		if err := g.wait(ctx, c); err != nil {
			return nil, err
		}
		reply, err, retry, retryAlone := c.reply, c.err, c.retry, c.retryAlone
		ctx.received = c.received
		if useDeal = c.useDeal; retry && !useDeal {
			list[plainArg] = &no
		}
		g.reuse(c)
		switch {
		case retryAlone:
			return eval(ctx, on, s, list)
		case !retry:
			return reply, err
		}
	}
}

// sendAlone sends a call on its own connection, after add has counted it.
func (g *groups) sendAlone(ctx *limited, now time.Time, on redis.UniversalClient, s *script, list []any) (reply any, err error) {
	defer func() { ctx.received = g.endAlone(now, err) }()
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
	if g.stopped || g.underWay < limit && g.waiting.n == 0 {
		g.underWay++
		return nil
	}
	g.server = server // in a cluster go-redis may have made a new client for the same address
	c := g.newCall()
	c.s, c.list, c.useDeal, c.since = s, list, useDeal && g.useDeal, now
	c.end, _ = ctx.Deadline() // ctx is a limited, which always has a deadline
	g.endByLocked(c.end, now)
	if c.useDeal && s == acquireScript {
		c.terms.set(list)
	}
	if g.waiting.n == 0 {
		g.timer.Reset(groupWait) //planted:group-beside
		if !now.Before(g.groupUntil) {
			g.groupUntil = now.Add(groupTime)
		}
	}
	g.waiting.add(c)
	if g.waiting.n == maxGroup && g.underWay < ownPoolSize {
		g.startGroupLocked()
	}
	return c
}

// wait waits for the reply of c, its end, or the end of ctx. After an error the caller must not use
// c, because a group may write to it.
func (g *groups) wait(ctx context.Context, c *call) error {
	end := ctx.Done()
	if end == nil { // a receive costs less than a select
		<-c.done
		return c.left
	}
	select {
	case <-c.done:
		return c.left
	case <-end:
	}
	g.mu.Lock()
	ended := c.finished || c.left != nil
	if !ended {
		g.leaveLocked(c, ctx.Err()) // not the cause, which may be an error of another command of the user
	}
	g.mu.Unlock()
	if ended { // the signal is on its way
		<-c.done
	}
	return c.left
}

// leaveLocked ends a call before its group does.
func (g *groups) leaveLocked(c *call, err error) {
	c.left = err
	if !c.taken { //planted:leaves-the-group
		c.left, c.unsent = &notSentError{err}, true
		g.waiting.n--
	}
}

// endByLocked makes endOverdue run at end, or before.
func (g *groups) endByLocked(end, now time.Time) {
	if g.nextEnd.IsZero() || end.Before(g.nextEnd) {
		g.nextEnd = end
		g.endTimer.Reset(end.Sub(now))
	}
}

// endOverdue ends the calls whose time has ended. It is one timer for all calls, because most calls
// get their reply before it fires once.
func (g *groups) endOverdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, next := time.Now(), time.Time{}
	check := func(c *call) {
		switch {
		case c.left != nil:
		case !c.end.After(now):
			g.leaveLocked(c, os.ErrDeadlineExceeded)
			c.done <- struct{}{}
		case next.IsZero() || c.end.Before(next):
			next = c.end
		}
	}
	g.waiting.each(check)
	for _, group := range g.sending {
		for _, c := range group.calls {
			check(c)
		}
	}
	g.nextEnd = time.Time{}
	if !next.IsZero() {
		g.endByLocked(later(next, now.Add(endPause)), now)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endAlone ends the send of a call alone, and returns the time.
func (g *groups) endAlone(sent time.Time, err error) (now time.Time) {
	now = time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.roundTrips.add(now, now.Sub(sent))
	}
	g.endSendLocked()
	return now
}

// endSendLocked ends a send. If calls wait, a group takes its place.
func (g *groups) endSendLocked() {
	g.underWay--
	if g.waiting.n > 0 {
		g.startGroupLocked()
	}
}

// startBeside starts a group beside the sends under way, if calls wait.
func (g *groups) startBeside() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting.n > 0 && g.underWay < ownPoolSize {
		g.startGroupLocked()
	}
}

// startGroupLocked sends the next group on its own goroutine.
func (g *groups) startGroupLocked() {
	g.underWay++
	group := new(group)
	g.sending = append(g.sending, group)
	g.takeGroupLocked(group)
	g.senders.Go(func() { g.sendGroups(group) })
}

// group is a number of calls that are sent in one write.
type group struct {
	server     redis.UniversalClient
	calls      []*call // releases first, as deal.lua expects; guarded by groups.mu for endOverdue, only the group changes it
	finished   []*call // of the send before, to be signaled
	dealInFull bool    // deal.lua is sent in full
	results    sendResults

	// Memory of send, for the next group.
	deal, rest []*call
	list       []any
	cmds       []redis.Cmder
}

// sendResults are what a send shows beside the replies.
type sendResults struct {
	failed   bool // a command failed, so its time is not added to roundTrips
	dealt    bool // deal.lua has replied
	noScript bool // the server does not have deal.lua
	noDeal   bool // the server accepts no script with these keys
}

// waited returns how long the first call waited.
func (g *group) waited(sent time.Time) (d time.Duration) {
	for _, c := range g.calls {
		d = max(d, sent.Sub(c.since))
	}
	return d
}

// sentGroup is a group for report.
type sentGroup struct {
	calls  int
	waited time.Duration // of the first call
}

// sendGroups sends a group, and then the groups of the calls that wait meanwhile.
func (g *groups) sendGroups(group *group) {
	for more := true; more; {
		sent := time.Now()
		group.send()
		more = g.endGroup(group, sent)
		for _, c := range group.finished {
			c.done <- struct{}{}
		}
	}
}

// endGroup ends the send of a group, and moves its calls that have not left to finished. If calls
// wait, it takes them into group, which is the next send, and returns true.
func (g *groups) endGroup(group *group, sent time.Time) (more bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !group.results.failed {
		g.roundTrips.add(now, now.Sub(sent))
	}
	if len(group.calls) > aloneCalls {
		g.groupUntil = now.Add(groupTime)
	}
	if group.results.noScript || group.results.dealt {
		g.dealInFull = group.results.noScript
	}
	if group.results.noDeal {
		g.useDeal = false
	}
	if g.report != nil {
		if len(g.reports) < maxReports {
			g.reports = append(g.reports, sentGroup{len(group.calls), group.waited(sent)})
		}
		if !g.reporting {
			g.reporting = true
			g.senders.Go(g.reportAll)
		}
	}
	group.finished = group.finished[:0]
	for _, c := range group.calls {
		if c.left == nil {
			c.finished, c.received = true, now
			group.finished = append(group.finished, c)
		}
	}
	if g.waiting.n == 0 {
		g.underWay--
		i := slices.Index(g.sending, group)
		g.sending = slices.Delete(g.sending, i, i+1)
		return false
	}
	g.takeGroupLocked(group)
	return true
}

// reportAll calls report for all groups that are not reported, also for those that end meanwhile.
// report is user code, which may block: then at most one goroutine waits for it.
func (g *groups) reportAll() {
	for {
		g.mu.Lock()
		all := g.reports
		g.reports = nil
		g.reporting = len(all) > 0
		g.mu.Unlock()
		for _, r := range all {
			g.report(r.calls, r.waited)
		}
		if len(all) == 0 {
			return
		}
	}
}

// takeGroupLocked takes the calls of the next group from waiting.
func (g *groups) takeGroupLocked(next *group) {
	next.server, next.calls, next.dealInFull = g.server, g.waiting.take(next.calls[:0]), g.dealInFull
	if g.waiting.n > 0 {
		g.timer.Reset(groupWait)
	} else {
		g.timer.Stop()
	}
}

// rank orders releases before other calls.
func (c *call) rank() int {
	if c.s == releaseScript || c.s == rotateScript {
		return 0
	}
	return 1
}

// newCall returns a new call, or one that was given to reuse.
func (g *groups) newCall() *call {
	if c, ok := g.calls.Get().(*call); ok {
		return c
	}
	return &call{done: make(chan struct{}, 1)}
}

// reuse makes a call available to newCall after its caller has read the reply.
func (g *groups) reuse(c *call) {
	*c = call{done: c.done, terms: c.terms}
	g.calls.Put(c)
}

// stop fails the calls in waiting. Each later call is sent alone. The groups under way end when
// their connections are closed.
func (g *groups) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
	for g.waiting.n > 0 {
		for _, c := range g.waiting.take(nil) {
			c.err, c.finished = &notSentError{errCutOff}, true
			c.done <- struct{}{}
		}
	}
}
