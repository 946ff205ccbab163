package cleanup

import (
	"cmp"
	chain "container/list"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// send sends the entries of its lane until the lane is empty or paused, or the queue is stopped.
func (q *Queue) send(ln *lane) {
	defer q.senders.Done()
	for {
		batch := q.take(ln)
		q.Report()
		if len(batch) == 0 {
			return
		}
		if ln.node == "" {
			batch = q.route(batch)
		}
		if len(batch) > 0 {
			q.settle(ln, batch, q.cleanUp(batch))
		}
	}
}

// take removes the next batch from a lane. If the batch is empty, the sender must end.
func (q *Queue) take(ln *lane) (batch []*cleanup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < cleanupBatch && ln.ready.Len() > 0 && !ln.paused && !q.stopped {
		c := ln.ready.Remove(ln.ready.Front()).(*cleanup) //nolint:errcheck,forcetypeassert // it has nothing else
		c.in, c.at = nil, nil
		if !c.until.IsZero() && time.Now().After(c.until) {
			q.endLocked(c, cmp.Or(c.err, backend.ErrTooLate))
			continue
		}
		batch = append(batch, c)
	}
	if len(batch) == 0 {
		ln.senders--
	}
	return batch
}

// route moves entries of a cluster to the lanes of their servers. It returns the entries whose
// server is not known.
func (q *Queue) route(batch []*cleanup) (rest []*cleanup) {
	keys := make([]*backend.Key, len(batch))
	for i, c := range batch {
		keys[i] = c.key
	}
	ctx, cancel := context.WithTimeout(q.base, backend.CallTimeout)
	nodes := q.conn.Route(ctx, keys)
	cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, c := range batch {
		switch {
		case nodes[i] == "":
			rest = append(rest, c)
		case q.all[c.id] == c: // otherwise stop has ended the entry
			q.putLocked(q.laneLocked(nodes[i]), c)
		}
	}
	return rest
}

// settle ends the entries that Redis has confirmed, and schedules another try for the others.
func (q *Queue) settle(ln *lane, batch []*cleanup, errs []error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	replied, pause := false, firstRetry
	for i, c := range batch {
		err := errs[i]
		switch {
		case err == nil, conn.Permanent(err) && !errors.Is(err, backend.ErrHeldUp) && !conn.LoginRefused(err):
			replied = true
			q.endLocked(c, err)
			continue
		case conn.SlotOnly(err):
			replied = true
		case conn.MayTakeEffect(err):
			c.repeated = true
		}
		if c.err != nil { // this was not the first try
			pause = cleanupRetry
		}
		c.err, c.in = err, &ln.failed
		c.at = c.in.PushBack(c) //planted:cleanup-tried-again
	}
	if replied {
		ln.fails = 0
	} else {
		ln.fails++
		ln.paused = true
	}
	if ln.fails > 1 {
		pause = cleanupRetry
	}
	if ln.failed.Len() > 0 && ln.timer == nil {
		ln.timer = time.AfterFunc(pause, func() { q.retry(ln) })
	}
	q.startLocked(ln)
}

// retry makes failed entries ready again. In a cluster their slots may have moved, so retry routes
// all entries of the lane again.
func (q *Queue) retry(ln *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.timer, ln.paused = nil, false
	if q.stopped {
		return
	}
	to, from := q.laneLocked(""), []*chain.List{&ln.failed}
	if to != ln {
		from = append(from, &ln.ready)
	}
	for _, from := range from {
		for e := from.Front(); e != nil; e = from.Front() {
			q.putLocked(to, from.Remove(e).(*cleanup)) //nolint:errcheck,forcetypeassert // it has nothing else
		}
	}
	q.startLocked(ln)
}

// command returns the command of an entry.
func (q *Queue) command(c *cleanup) wire.Command {
	if c.release == nil {
		again := *c.withdraw
		again.Repeated = c.repeated
		return q.wire.Withdraw(&again)
	}
	again, now := *c.release, time.Now()
	cooldown := wire.Cooldown(&again, now)
	if again.Share.Limit > 0 {
		// A key remembers 16 ended ids. During an outage, a process with many permits must not
		// displace the ids that matter. So this id is remembered only if its acquire may arrive
		// again.
		return q.wire.ReleaseShare(&again, cooldown)
	}
	again.Repeated = true
	return q.wire.Release(&again, cooldown, new(wire.Room))
}

// cleanUp sends a batch in one pipeline, and entries that got no connection by the others. It returns
// an error or nil for each entry.
func (q *Queue) cleanUp(batch []*cleanup) []error {
	ctx, cancel := context.WithTimeout(q.base, backend.CallTimeout)
	defer cancel()
	all := make([]wire.Command, len(batch))
	for i, b := range batch {
		all[i] = q.command(b)
	}
	v, err := q.conn.Bounded(ctx, func() (any, error) {
		errs := make([]error, len(all))
		todo := make([]int, len(all))
		for i := range todo {
			todo[i] = i
		}
		if todo = cleanUpBy(ctx, q.conn.Ends, all, todo, errs); len(todo) == 0 {
			return errs, nil
		}
		for other := range q.conn.Others(q.conn.Ends) {
			if todo = cleanUpBy(ctx, other, all, todo, errs); len(todo) == 0 {
				break
			}
		}
		return errs, nil
	})
	errs, ok := v.([]error)
	if !ok || err != nil {
		errs = make([]error, len(batch))
		for i := range errs {
			errs[i] = err
		}
	}
	for _, err := range errs {
		conn.ReloadSlots(ctx, q.conn.Ends, err)
	}
	return errs
}

// cleanUpBy sends the commands todo of all by one client. It sets their errors, and returns those
// that got no connection.
func cleanUpBy(ctx context.Context, on redis.UniversalClient, all []wire.Command, todo []int, errs []error) (unsent []int) {
	for inFull := false; len(todo) > 0; {
		pipe, cmds := on.Pipeline(), make([]*redis.Cmd, len(todo))
		for n, i := range todo {
			cmd := all[i]
			cmd.List = slices.Clone(cmd.List) // go-redis may still read the previous one
			if cmd.Use(cmd.SHA); inFull {
				cmd.Use(cmd.Full)
			}
			cmds[n] = redis.NewCmd(ctx, cmd.List...)
			_ = pipe.Process(ctx, cmds[n])
		}
		_, err := pipe.Exec(ctx)
		var again []int
		unknown := false
		for n, i := range todo {
			errs[i] = conn.CommandErr(cmds[n], err)
			switch {
			case conn.NoConnection(errs[i]):
				unsent = append(unsent, i)
				continue
			case errs[i] != nil && redis.HasErrorPrefix(errs[i], "NOSCRIPT") && !inFull: // the server does not have the script
				unknown = true
			case errs[i] != nil || !wire.IsStep(cmds[n].Val()): //planted:cleanup-step-sent-again
				continue
			}
			again = append(again, i)
		}
		todo, inFull = again, inFull || unknown
	}
	return unsent
}
