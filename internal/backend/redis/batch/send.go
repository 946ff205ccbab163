package batch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// send sends a group in one write, and sets the reply of each call. The deadline of the write is
// the latest one of the calls. A call with an earlier deadline leaves before send returns.
func (g *group) send() {
	g.results = sendResults{}
	var end time.Time
	deal, rest := g.deal[:0], g.rest[:0]
	for _, c := range g.calls {
		if c.end.After(end) {
			end = c.end
		}
		if c.useDeal {
			deal = append(deal, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(deal) == 1 { // the own script of a single call costs less
		deal, rest = deal[:0], append(rest, deal[0])
	}
	ctx := &conn.Limited{Context: context.Background(), End: end}
	cmds := g.cmds[:0]
	if len(deal) > 0 {
		cmds = append(cmds, g.dealCommand(ctx, deal))
	}
	for _, c := range rest {
		c.cmd.Use(c.cmd.SHA)
		cmds = append(cmds, redis.NewCmd(ctx, c.cmd.List...))
	}
	g.deal, g.rest, g.cmds = deal, rest, cmds
	exec := g.exchange(ctx, cmds)
	g.results.failed = exec != nil
	for _, c := range g.calls {
		c.lost = ctx.Sends.Lost || !ctx.Sends.Seen // the client of a node, or a hook of that client, may send a group again
	}
	if len(deal) > 0 {
		cmd, _ := cmds[0].(*redis.Cmd)
		cmds = cmds[1:]
		g.setDealReplies(deal, cmd.Val(), conn.CommandErr(cmd, exec))
	}
	for i, c := range rest {
		cmd, _ := cmds[i].(*redis.Cmd)
		c.reply, c.err = cmd.Val(), conn.CommandErr(cmd, exec)
		c.retryAlone = canRetryAlone(c.err)
	}
}

// exchange sends commands in one write and waits for their replies. It returns the first error.
func (g *group) exchange(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 {
		return g.server.Process(ctx, cmds[0])
	}
	pipe := g.server.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	return err
}

// canRetryAlone reports whether a call that got err was not executed, and may succeed if it is sent
// alone:
//   - The server does not have the script.
//   - Another server of a cluster has the key.
//   - go-redis has closed the client of this server.
func canRetryAlone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || conn.SlotOnly(err) || errors.Is(err, redis.ErrClosed))
}

// dealCommand returns the command of deal.lua for calls. The releases must come first in calls.
func (g *group) dealCommand(ctx context.Context, calls []*call) *redis.Cmd {
	head := wire.Deal.SHA
	if g.dealInFull {
		head = wire.Deal.Full
	}
	g.list = wire.AppendDeal(append(g.list[:0], head...), len(calls), func(i int) (wire.Command, *wire.HoldTerms) {
		return calls[i].cmd, &calls[i].terms
	})
	return redis.NewCmd(ctx, g.list...)
}

// setDealReplies sets for each call the reply that its own script would return. A call that
// deal.lua did not execute is sent again with its own script.
func (g *group) setDealReplies(calls []*call, reply any, err error) {
	var undone [maxGroup]bool
	grant, bad := wire.DealReply(reply, len(calls), !calls[len(calls)-1].releases(), func(i int) { undone[i] = true })
	switch {
	case err == nil && bad != nil:
		err = bad
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		g.results.noScript = true
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		g.results.noDeal = true
	}
	g.results.dealt = err == nil
	for i, c := range calls {
		switch {
		case err != nil:
			// After an error reply the script has had no effect. redis.Nil is not an error reply.
			c.err, c.retry, c.useDeal = err, errors.As(err, new(redis.Error)) && !errors.Is(err, redis.Nil), g.results.noScript
		case undone[i]:
			c.retry, c.useDeal = true, false
		case c.releases():
			c.reply = int64(1)
		default:
			c.reply = grant
		}
	}
}
