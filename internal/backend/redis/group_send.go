package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// plainArg is the index of the flag of acquire.lua and release.lua that allows plain holds.
const plainArg = 14

// deals reports whether deal.lua can do what a command of s asks for.
func (s *script) deals(list []any) bool {
	return (s == acquireScript || s == releaseScript) && list[plainArg] == &yesDeal
}

// termsOf returns the terms of a plain hold as deal.lua stores them. list is that of acquire.lua.
func termsOf(list []any) string {
	lease, _ := list[7].(*int64)
	locker, _ := list[6].(*string)
	holder, _ := list[9].(*string)
	return strconv.FormatInt(*lease, 10) + " 0 " + *locker + " " + *holder
}

// send sends a group in one write, and gives each call its reply. The connection waits until the
// last call of the group has reached its end; the others leave before.
func (g *group) send() {
	var end time.Time
	var deal, rest []*call
	for _, c := range g.calls {
		if c.end.After(end) {
			end = c.end
		}
		if !c.deal {
			rest = append(rest, c)
		} else if c.rank() == 0 {
			deal = append(deal, c)
		}
	}
	for _, c := range g.calls { // after the releases
		if c.deal && c.rank() > 0 {
			deal = append(deal, c)
		}
	}
	if len(deal) == 1 { // its own script costs less
		deal, rest = nil, append(rest, deal[0])
	}
	ctx := &limited{Context: context.Background(), end: end}
	cmds := make([]redis.Cmder, 0, 1+len(rest))
	if deal != nil {
		cmds = append(cmds, dealCommand(ctx, deal, dealScript.sha))
	}
	for _, c := range rest {
		copy(c.list, c.s.sha)
		cmds = append(cmds, redis.NewCmd(ctx, c.list...))
	}
	exec := g.exchange(ctx, cmds)
	g.failed = exec != nil
	if deal != nil {
		cmd, _ := cmds[0].(*redis.Cmd)
		cmds = cmds[1:]
		err := commandErr(cmd, exec)
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			cmd = dealCommand(ctx, deal, dealScript.text)
			err = g.server.Process(ctx, cmd)
		}
		settleDeal(deal, cmd.Val(), err)
	}
	for i, c := range rest {
		cmd, _ := cmds[i].(*redis.Cmd)
		c.reply, c.err = cmd.Val(), commandErr(cmd, exec)
		c.alone = needsOwn(c.err)
	}
}

// exchange sends commands on one connection and waits for their replies.
func (g *group) exchange(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 {
		return g.server.Process(ctx, cmds[0])
	}
	pipe := g.server.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	return err
}

// needsOwn reports whether a call that got err was not executed, and may succeed if it is sent alone:
// the server has forgotten the script, another server of a cluster has the key, or go-redis has
// closed the client of this server.
func needsOwn(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || slotOnly(err) || errors.Is(err, redis.ErrClosed))
}

// dealCommand returns the command of deal.lua for calls, whose releases come first. head is the name
// of the command and the script.
func dealCommand(ctx context.Context, calls []*call, head []any) *redis.Cmd {
	releases := 0
	list := make([]any, 3, 4+4*len(calls))
	copy(list, head)
	list[2] = len(calls)
	for _, c := range calls {
		list = append(list, c.list[3])
		releases += 1 - c.rank()
	}
	list = append(list, releases)
	for _, c := range calls {
		list = append(list, c.list[5])
		if c.rank() > 0 {
			list = append(list, &c.terms, c.list[10])
		}
	}
	return redis.NewCmd(ctx, list...)
}

// settleDeal gives calls the replies that their own scripts would give. A call for which nothing was
// done is sent again, with its own script.
func settleDeal(calls []*call, reply any, err error) {
	list, _ := reply.([]any)
	token := text(list, 0)
	for _, c := range calls {
		switch {
		case err != nil:
			c.err, c.again = err, errors.As(err, new(redis.Error)) // an error reply: the script did nothing
		case c.rank() == 0:
			c.reply = int64(1)
		default:
			c.reply = token
		}
	}
	for i := 1; i < len(list); i++ {
		n, _ := list[i].(int64)
		if n < 1 || int(n) > len(calls) {
			bad := &replyError{fmt.Sprintf("lockcore: unexpected reply: %v at %d", list[i], i)}
			for _, c := range calls {
				c.err = bad
			}
			return
		}
		calls[n-1].again = true
	}
}
