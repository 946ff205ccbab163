package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/cleanup"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// cleaner sends the withdrawals and releases of the cleanup queue.
type cleaner struct {
	*conn.Conn
	wire *wire.Sender
}

// After implements cleanup.Sender.
func (c *cleaner) After(err error) cleanup.Fate {
	switch {
	case conn.Permanent(err) && !errors.Is(err, backend.ErrHeldUp) && !conn.LoginRefused(err):
		return cleanup.GiveUp
	case conn.SlotOnly(err):
		return cleanup.Refused
	case conn.MayTakeEffect(err):
		return cleanup.MayTakeEffect
	}
	return cleanup.TryAgain
}

// command returns the command of an entry.
func (c *cleaner) command(e cleanup.Entry) wire.Command {
	if e.Release == nil {
		return c.wire.Withdraw(e.Withdraw)
	}
	cooldown := wire.Cooldown(e.Release, time.Now())
	if e.Release.Share.Limit > 0 {
		return c.wire.ReleaseShare(e.Release, cooldown)
	}
	return c.wire.Release(e.Release, cooldown, new(wire.Room))
}

// Send implements cleanup.Sender. It sends a batch in one pipeline, and entries that got no
// connection by the others.
func (c *cleaner) Send(ctx context.Context, batch []cleanup.Entry) []error {
	all := make([]wire.Command, len(batch))
	for i, e := range batch {
		all[i] = c.command(e)
	}
	v, err := c.Bounded(ctx, func() (any, error) {
		errs := make([]error, len(all))
		todo := make([]int, len(all))
		for i := range todo {
			todo[i] = i
		}
		if todo = cleanUpBy(ctx, c.Ends, all, todo, errs); len(todo) == 0 {
			return errs, nil
		}
		for other := range c.Others(c.Ends) {
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
		conn.ReloadSlots(ctx, c.Ends, err)
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
