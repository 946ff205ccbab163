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

// canDeal reports whether deal.lua may do a command of s. plainRef decides that.
func (s *script) canDeal(list []any) bool {
	return (s == acquireScript || s == releaseScript) && list[plainArg] == &yesDeal
}

// termsOf returns the part of a plain hold after the token, from a list of acquire.lua.
func termsOf(list []any) string {
	lease, _ := list[7].(*int64)
	locker, _ := list[6].(*string)
	holder, _ := list[9].(*string)
	return strconv.FormatInt(*lease, 10) + " 0 " + *locker + " " + *holder
}

// send sends a group in one write, and sets the reply of each call. It waits until the last end of
// its calls. A call with an earlier end does not wait for send.
func (g *group) send() {
	var end time.Time
	var deal, rest []*call
	for _, c := range g.calls {
		if c.end.After(end) {
			end = c.end
		}
		if !c.useDeal {
			rest = append(rest, c)
		} else if c.rank() == 0 {
			deal = append(deal, c)
		}
	}
	for _, c := range g.calls { // deal.lua expects the releases first
		if c.useDeal && c.rank() > 0 {
			deal = append(deal, c)
		}
	}
	if len(deal) == 1 { // the script of the call costs less
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
		setDealReplies(deal, cmd.Val(), err)
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
//   - the server does not have the script
//   - another server of a cluster has the key
//   - go-redis has closed the client of this server
func canRetryAlone(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOSCRIPT") || slotOnly(err) || errors.Is(err, redis.ErrClosed))
}

// dealCommand returns the command of deal.lua for calls. In calls the releases come first. head is
// EVALSHA and the digest of the script, or EVAL and its source.
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

// setDealReplies sets the replies of calls to those of acquire.lua and release.lua. A call for
// which deal.lua did nothing is sent again, with its own script.
func setDealReplies(calls []*call, reply any, err error) {
	list, _ := reply.([]any)
	token := text(list, 0)
	for _, c := range calls {
		switch {
		case err != nil:
			c.err, c.retryOwnScript = err, errors.As(err, new(redis.Error)) // after an error reply the script has done nothing
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
		calls[n-1].retryOwnScript = true
	}
}
