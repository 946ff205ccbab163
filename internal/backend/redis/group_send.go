package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// plainArg is the index of the flag for plain holds in the lists of acquire.lua and release.lua.
const plainArg = 14

// canDeal reports whether deal.lua may handle this command of s. plainRef marks such commands.
func (s *script) canDeal(list []any) bool {
	return (s == acquireScript || s == releaseScript) && list[plainArg] == &yesDeal
}

// holdTerms is the part of a plain hold after the token. It is a BinaryMarshaler, because go-redis
// writes the bytes of a BinaryMarshaler without a copy.
type holdTerms []byte

// set sets the terms from a list of acquire.lua. It reuses the memory of t.
func (t *holdTerms) set(list []any) {
	lease, _ := list[7].(*int64)
	locker, _ := list[6].(*string)
	holder, _ := list[9].(*string)
	b := strconv.AppendInt((*t)[:0], *lease, 10)
	b = append(append(b, " 0 "...), *locker...)
	*t = append(append(b, ' '), *holder...)
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (t *holdTerms) MarshalBinary() ([]byte, error) { return *t, nil }

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
	ctx := &limited{Context: context.Background(), end: end}
	cmds := g.cmds[:0]
	if len(deal) > 0 {
		cmds = append(cmds, g.dealCommand(ctx, deal))
	}
	for _, c := range rest {
		copy(c.list, c.s.sha)
		cmds = append(cmds, redis.NewCmd(ctx, c.list...))
	}
	g.deal, g.rest, g.cmds = deal, rest, cmds
	exec := g.exchange(ctx, cmds)
	g.results.failed = exec != nil
	for _, c := range g.calls {
		c.lost = ctx.sends.lost || !ctx.sends.seen // the client of a node, or a hook of that client, may send a group again
	}
	if len(deal) > 0 {
		cmd, _ := cmds[0].(*redis.Cmd)
		cmds = cmds[1:]
		g.setDealReplies(deal, cmd.Val(), commandErr(cmd, exec))
	}
	for i, c := range rest {
		cmd, _ := cmds[i].(*redis.Cmd)
		c.reply, c.err = cmd.Val(), commandErr(cmd, exec)
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
	return err != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || slotOnly(err) || errors.Is(err, redis.ErrClosed))
}

// dealCommand returns the command of deal.lua for calls. The releases must come first in calls.
func (g *group) dealCommand(ctx context.Context, calls []*call) *redis.Cmd {
	head := dealScript.sha
	if g.dealInFull {
		head = dealScript.text
	}
	releases := 0 // calls that release a key
	list := append(append(g.list[:0], head...), len(calls))
	for _, c := range calls {
		list = append(list, c.list[3])
		if c.releases() {
			releases++
		}
	}
	list = append(list, releases)
	for _, c := range calls {
		list = append(list, c.list[5])
		if !c.releases() {
			list = append(list, &c.terms, c.list[10])
		}
	}
	g.list = list
	return redis.NewCmd(ctx, list...)
}

// setDealReplies sets for each call the reply that its own script would return. A call that
// deal.lua did not execute is sent again with its own script.
func (g *group) setDealReplies(calls []*call, reply any, err error) {
	list, undone, bad := dealReply(calls, reply)
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
			c.reply = list[0]
		}
	}
}

// dealReply decodes a reply of deal.lua. undone[i] is true if the script did not execute calls[i].
func dealReply(calls []*call, reply any) (list []any, undone [maxGroup]bool, err error) {
	bad := func() error { return &replyError{fmt.Sprintf("lockcore: unexpected reply: %v", reply)} }
	list, _ = reply.([]any)
	if len(list) == 0 {
		return list, undone, bad()
	}
	token, ok := list[0].(string)
	if acquires := !calls[len(calls)-1].releases(); !ok || (token != "") != acquires {
		return list, undone, bad()
	}
	last := int64(0)
	for _, v := range list[1:] {
		n, ok := v.(int64)
		if !ok || n <= last || n > int64(len(calls)) {
			return list, undone, bad()
		}
		undone[n-1], last = true, n
	}
	return list, undone, nil
}
