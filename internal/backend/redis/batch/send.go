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
	many, rest := g.many[:0], g.rest[:0]
	for _, c := range g.calls {
		if c.end.After(end) {
			end = c.end
		}
		if c.useGrantMany {
			many = append(many, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(many) == 1 { // the own script of a single call costs less
		many, rest = many[:0], append(rest, many[0])
	}
	ctx := &conn.Limited{Context: context.Background(), End: end}
	cmds := g.cmds[:0]
	if len(many) > 0 {
		cmds = append(cmds, g.grantManyCommand(ctx, many))
	}
	for _, c := range rest {
		c.cmd.Use(c.cmd.SHA)
		cmds = append(cmds, redis.NewCmd(ctx, c.cmd.List...))
	}
	g.many, g.rest, g.cmds = many, rest, cmds
	exec := g.exchange(ctx, cmds)
	g.results.failed = exec != nil
	for _, c := range g.calls {
		c.lost = ctx.Sends.Lost || !ctx.Sends.Seen // the client of a node, or a hook of that client, may send a group again
	}
	if len(many) > 0 {
		cmd, _ := cmds[0].(*redis.Cmd)
		cmds = cmds[1:]
		g.setGrantManyReplies(many, cmd.Val(), conn.CommandErr(cmd, exec))
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

// grantManyCommand returns the command of grant_many.lua for calls. The releases must come first in
// calls.
func (g *group) grantManyCommand(ctx context.Context, calls []*call) *redis.Cmd {
	head := wire.GrantMany.SHA
	if g.grantManyInFull {
		head = wire.GrantMany.Full
	}
	g.list = wire.AppendGrantMany(append(g.list[:0], head...), len(calls), func(i int) (wire.Command, *wire.HoldTerms) {
		return calls[i].cmd, &calls[i].terms
	})
	return redis.NewCmd(ctx, g.list...)
}

// setGrantManyReplies sets for each call the reply that its own script would return. A call that
// grant_many.lua did not execute is sent again with its own script.
func (g *group) setGrantManyReplies(calls []*call, reply any, err error) {
	var undone [maxGroup]bool
	grant, bad := wire.GrantManyReply(reply, len(calls), !calls[len(calls)-1].releases(), func(i int) { undone[i] = true })
	switch {
	case err == nil && bad != nil:
		err = bad
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		g.results.noScript = true
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		g.results.noGrantMany = true
	}
	g.results.replied = err == nil
	for i, c := range calls {
		switch {
		case err != nil:
			// After an error reply the script has had no effect. redis.Nil is not an error reply.
			c.err, c.retry, c.useGrantMany = err, errors.As(err, new(redis.Error)) && !errors.Is(err, redis.Nil), g.results.noScript
		case undone[i]:
			c.retry, c.useGrantMany = true, false
		case c.releases():
			c.reply = int64(1)
		default:
			c.reply = grant
		}
	}
}
