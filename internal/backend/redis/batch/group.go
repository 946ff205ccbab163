// Package batch sends the calls to one server in groups: while sends are in flight, further calls wait
// for the next group, which is one write.
package batch

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const (
	aloneCalls = 4                    // while fewer sends are in flight, a call is sent alone; does not apply before groups.groupUntil
	groupTime  = 5 * time.Millisecond // from the first wait, or from the end of a group of more than aloneCalls calls, to groupUntil
	groupWait  = time.Millisecond     // the longest wait before a group starts beside the sends in flight
	endPause   = time.Millisecond     // minimum time between two runs of endOverdue
	maxReports = 1024                 // maximum number of groups that wait for report; further groups are not reported
	maxGroup   = 64                   // maximum number of calls in a group
)

// groups sends the calls to one server. A send is one call alone, on its own connection, or one
// group of calls, in one write. While few sends are in flight, each call is sent alone. With more,
// calls wait. The end of a send starts a group of all calls that wait, up to maxGroup. On a single
// server, one run of grant_many.lua handles all plain releases and acquires of a group.
//
// A call is sent alone, is in waiting, or is in one group. A call leaves when its ctx ends or its
// deadline passes. mu decides two races:
//   - A call leaves while a group takes it from waiting. If the call is first, it is never sent.
//   - A call leaves while its group ends. The call is either finished or has left, never both.
//
// The caller gets one signal if the call is finished or its deadline passed. A call that has left
// is not reused, because its group still writes to it.
//
// Calls wait only while a send is in flight. A timer starts another group after groupWait, so a
// slow reply delays only the calls of its own send.
type groups struct {
	report func(calls int, waited time.Duration) // may be nil

	mu              sync.Mutex
	useGrantMany    bool                  // false in a cluster, where one script cannot have keys of several slots
	grantManyInFull bool                  // send grant_many.lua in full, because the server does not have it
	server          redis.UniversalClient // *redis.Client
	waiting         waitingCalls
	underWay        int       // number of sends in flight: calls sent alone, and groups
	groupUntil      time.Time // before this time only the limit of roundTrips applies, not aloneCalls
	roundTrips      roundTrips
	timer           *time.Timer // runs startBeside after groupWait
	endTimer        *time.Timer // runs endOverdue at nextEnd; without calls it fires at most once more
	nextEnd         time.Time   // no later than any deadline of a call in waiting or sending; zero if endTimer is not set
	sending         []*group    // the groups in flight
	reports         []sentGroup // groups not yet passed to report, at most maxReports
	reporting       bool        // a goroutine is running reportAll
	stopped         bool
	senders         sync.WaitGroup // goroutines of sendGroups and reportAll

	calls sync.Pool // of *call; not global, because a done channel belongs to the synctest bubble of its Locker
}

// call is one call that waits for a group, or is in one.
type call struct {
	cmd          wire.Command
	end          time.Time      // deadline of the send
	useGrantMany bool           // grant_many.lua may handle the call
	terms        wire.HoldTerms // of an acquire, for grant_many.lua

	since time.Time // when the call was added

	// Guarded by groups.mu. An unsent call stays in waiting until take removes it.
	taken    bool  // a group or stop has taken it from waiting
	finished bool  // it has its result from the group or stop
	left     error // why the call left; nil: it has not left
	unsent   bool  // the call left before it was taken

	done chan struct{}

	// Set before the send to done, by the group or stop.
	reply      any
	err        error
	retry      bool // it was not executed: send it again; if useGrantMany is false, with its own script
	retryAlone bool // it was not executed: send it alone
	lost       bool // in a cluster: a duplicate of the command may arrive later, see sends
	received   time.Time
}

// newGroups returns the groups of a server. If useGrantMany is false, no group uses grant_many.lua.
func newGroups(useGrantMany bool, report func(calls int, waited time.Duration)) *groups {
	g := &groups{useGrantMany: useGrantMany, report: report}
	g.timer = time.AfterFunc(groupWait, g.startBeside) // at first no call waits
	g.endTimer = time.AfterFunc(backend.CallTimeout, g.endOverdue)
	return g
}

// eval sends a script and waits for its reply. The groups are sent by server, the client of one
// server. A call that is sent alone is sent by on, which may be a ClusterClient.
func (g *groups) eval(ctx *conn.Limited, server, on redis.UniversalClient, cmd wire.Command, now time.Time) (any, error) {
	for useGrantMany := cmd.GrantMany; ; now = time.Now() {
		c := g.add(ctx, server, cmd, useGrantMany, now)
		if c == nil {
			return g.sendAlone(ctx, now, on, cmd)
		}
		if err := g.wait(ctx, c); err != nil {
			return nil, err
		}
		reply, err, retry, retryAlone, received := c.reply, c.err, c.retry, c.retryAlone, c.received
		if _, ok := on.(*redis.ClusterClient); ok {
			ctx.Sends.Lost = ctx.Sends.Lost || c.lost
		}
		if useGrantMany = c.useGrantMany; retry && !useGrantMany {
			cmd.SetNotPlain()
		}
		g.reuse(c)
		switch {
		case retryAlone:
			return conn.Send(ctx, on, cmd)
		case !retry:
			ctx.Received = received // not set if the call is sent again
			return reply, err
		}
	}
}

// sendAlone sends a call on its own connection. add must have counted the call.
func (g *groups) sendAlone(ctx *conn.Limited, now time.Time, on redis.UniversalClient, cmd wire.Command) (reply any, err error) {
	defer func() { ctx.Received = g.endAlone(now, err) }()
	return conn.Send(ctx, on, cmd)
}

// add adds a call to waiting. If the call must be sent alone, add counts it and returns nil. Then
// the caller must call endAlone after the send.
func (g *groups) add(ctx context.Context, server redis.UniversalClient, cmd wire.Command, useGrantMany bool, now time.Time) *call {
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
	g.server = server // in a cluster, go-redis may have made a new client for the same address
	c := g.newCall()
	c.cmd, c.useGrantMany, c.since = cmd, useGrantMany && g.useGrantMany, now
	c.end, _ = ctx.Deadline() // ctx is a conn.Limited, which always has a deadline
	g.endByLocked(c.end, now)
	if c.useGrantMany && cmd.Script == wire.Acquire {
		c.terms.Set(cmd)
	}
	if g.waiting.n == 0 {
		g.timer.Reset(groupWait) //planted:group-beside
		if !now.Before(g.groupUntil) {
			g.groupUntil = now.Add(groupTime)
		}
	}
	g.waiting.add(c)
	if g.waiting.n == maxGroup && g.underWay < conn.PoolSize {
		g.startGroupLocked()
	}
	return c
}

// wait waits for the reply of c, its deadline, or the end of ctx. After an error the caller must
// not use c, because a group may write to it.
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
		g.leaveLocked(c, ctx.Err()) // not context.Cause, which may be a Redis error from a command of the user
	}
	g.mu.Unlock()
	if ended { // the signal follows
		<-c.done
	}
	return c.left
}

// leaveLocked makes an unfinished call leave. If no group has taken the call, it is never sent.
func (g *groups) leaveLocked(c *call, err error) {
	c.left = err
	if !c.taken { //planted:leaves-the-group
		c.left, c.unsent = &conn.NotSentError{Cause: err}, true
		g.waiting.n--
	}
}

// endByLocked makes endOverdue run at end or earlier.
func (g *groups) endByLocked(end, now time.Time) {
	if g.nextEnd.IsZero() || end.Before(g.nextEnd) {
		g.nextEnd = end
		g.endTimer.Reset(end.Sub(now))
	}
}

// endOverdue makes the calls leave whose deadline has passed. All calls share endTimer, because
// most calls get their reply before it fires.
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
	if next.IsZero() {
		return
	}
	if soonest := now.Add(endPause); next.Before(soonest) {
		next = soonest
	}
	g.endByLocked(next, now)
}

// endAlone ends the send of a call that was sent alone. It returns the time at which the send
// ended.
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

// endSendLocked ends a send. If calls wait, a group starts instead.
func (g *groups) endSendLocked() {
	g.underWay--
	if g.waiting.n > 0 {
		g.startGroupLocked()
	}
}

// startBeside starts a group beside the sends in flight, if calls wait.
func (g *groups) startBeside() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting.n > 0 && g.underWay < conn.PoolSize {
		g.startGroupLocked()
	}
}

// startGroupLocked sends the next group on a new goroutine.
func (g *groups) startGroupLocked() {
	g.underWay++
	group := new(group)
	g.sending = append(g.sending, group)
	g.takeGroupLocked(group)
	g.senders.Go(func() { g.sendGroups(group) })
}

// group is a set of calls that are sent in one write.
type group struct {
	server          redis.UniversalClient
	calls           []*call // releases first, as grant_many.lua expects; changed under groups.mu, because endOverdue reads it
	finished        []*call // calls of the last send that have not got their signal yet
	grantManyInFull bool    // send grant_many.lua in full
	results         sendResults

	// Buffers of send, reused by the next group.
	many, rest []*call
	list       []any
	cmds       []redis.Cmder
}

// sendResults is the information that a send returns besides the replies.
type sendResults struct {
	failed      bool // a command failed, so its time is not added to roundTrips
	replied     bool // grant_many.lua has replied
	noScript    bool // the server does not have grant_many.lua
	noGrantMany bool // the server refuses a script with keys of several slots
}

// waited returns how long the first call of the group waited before the send.
func (g *group) waited(sent time.Time) (d time.Duration) {
	for _, c := range g.calls {
		d = max(d, sent.Sub(c.since))
	}
	return d
}

// sentGroup contains the arguments of report for a group.
type sentGroup struct {
	calls  int
	waited time.Duration // of the first call
}

// sendGroups sends a group, and then further groups while calls wait.
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

// endGroup ends the send of a group, and adds its calls that have not left to finished. If calls
// wait, it takes them into group for the next send, and returns true.
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
	if group.results.noScript || group.results.replied {
		g.grantManyInFull = group.results.noScript
	}
	if group.results.noGrantMany {
		g.useGrantMany = false
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

// reportAll calls report for each group in reports, including those that are added while it runs.
// report is user code and may block, so only one goroutine calls it.
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
	next.server, next.calls, next.grantManyInFull = g.server, g.waiting.take(next.calls[:0]), g.grantManyInFull
	if g.waiting.n > 0 {
		g.timer.Reset(groupWait)
	} else {
		g.timer.Stop()
	}
}

// releases reports whether the call releases a key.
func (c *call) releases() bool {
	return c.cmd.Script == wire.Release || c.cmd.Script == wire.Rotate || c.cmd.Script == wire.ReleaseShare
}

// newCall returns a new call, or one from the pool.
func (g *groups) newCall() *call {
	if c, ok := g.calls.Get().(*call); ok {
		return c
	}
	return &call{done: make(chan struct{}, 1)}
}

// reuse returns a call to the pool after its caller has read the reply.
func (g *groups) reuse(c *call) {
	*c = call{done: c.done, terms: c.terms}
	g.calls.Put(c)
}

// stop fails the calls in waiting. Each later call is sent alone. The groups in flight end when
// their connections are closed.
func (g *groups) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
	for g.waiting.n > 0 {
		for _, c := range g.waiting.take(nil) {
			c.err, c.finished = &conn.NotSentError{Cause: conn.ErrCutOff}, true
			c.done <- struct{}{}
		}
	}
}
