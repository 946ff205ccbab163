package redis

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const scriptBlock = 100 // maximum number of keys of one renew.lua command

// Renew sends a batch in one round trip. If the server does not have a script, Renew sends the
// batch once more in full.
//
// If the whole batch gets the error of a broken connection, Renew sends it again after a
// millisecond. It does so once, and then while the batch uses idle connections, which may all be
// broken, at most 2*conn.PoolSize times. So an endpoint that accepts connections and closes them gets
// few dials. If the whole batch gets no connection, Renew sends it by the others. If only a part of a
// batch gets such an error, the other replies must not wait.
//
// In a cluster the caller makes a batch for each server, see Route.
func (b *Backend) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	per, c := scriptBlock, b.send
	if !c.Single {
		per = 1 // the keys of one script must share a slot
	}
	v, err := c.InGoroutine(ctx, func() (any, error) {
		res := make([]backend.RenewReply, len(rs))
		if c.renewBy(ctx, c.Renews, rs, per, res) {
			return res, nil
		}
		for other := range c.Others(c.Renews) {
			if c.renewBy(ctx, other, rs, per, res) {
				break
			}
		}
		return res, nil
	})
	if res, ok := v.([]backend.RenewReply); ok && err == nil {
		return res
	}
	res := make([]backend.RenewReply, len(rs))
	for i := range res {
		res[i].Err = err
	}
	return res
}

func unknownScript(r backend.RenewReply) bool {
	return r.Err != nil && redis.HasErrorPrefix(r.Err, "NOSCRIPT")
}

// hasReply reports whether the connection of a renewal was not broken.
func hasReply(r backend.RenewReply) bool { return !conn.Broken(r.Err) }

func hasConnection(r backend.RenewReply) bool { return !conn.NoConnection(r.Err) }

// renewBy sends a batch by one client, again if necessary. It returns false if the client got no
// connection.
func (c *sender) renewBy(ctx context.Context, on redis.UniversalClient, rs []backend.RenewRequest, per int, res []backend.RenewReply) bool {
	for again, inFull := 0, false; ; {
		dialed := c.RenewDials()
		c.renewOnce(ctx, on, rs, per, res, inFull)
		stale := again == 0 || c.Own && on == c.Renews && again < 2*conn.PoolSize && dialed == c.RenewDials() //planted:stale-connections
		switch {
		case !inFull && slices.ContainsFunc(res, unknownScript): //planted:script-unknown
			inFull = true
		case !slices.ContainsFunc(res, hasReply) && stale && backend.Sleep(ctx, time.Millisecond): //planted:renewal-again
			again++
		default:
			return slices.ContainsFunc(res, hasConnection)
		}
	}
}

// renewOnce sends a batch. If inFull is true, it sends the text of the scripts instead of their
// digests.
func (c *sender) renewOnce(ctx context.Context, on redis.UniversalClient, rs []backend.RenewRequest, per int, res []backend.RenewReply, inFull bool) {
	pipe, wait := c.renewPipe(ctx, on, rs[0].Key.Stored[0])
	commands, keys := wire.Renewals(rs, per)
	cmds := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		if command.Use(command.SHA); inFull {
			command.Use(command.Full)
		}
		cmds[i] = redis.NewCmd(ctx, command.List...)
		_ = pipe.Process(ctx, cmds[i])
	}
	acks := wait()
	_, execErr := pipe.Exec(ctx)
	n := 0
	for i, cmd := range cmds {
		err := conn.Unreadable(conn.CommandErr(cmd, execErr), commands[i])
		var reply []any
		if err == nil {
			reply, err = cmd.Slice()
		}
		conn.ReloadSlots(ctx, on, err)
		for at := range keys[i] {
			r := &res[n]
			if r.Err = err; err == nil {
				r.Verdict, r.Err = wire.DecodeRenew(rs[n].Key, reply, at)
			}
			n++
		}
	}
	c.judgeRenewals(ctx, acks, commands, cmds, rs, res)
}

// Extend renews one lease.
func (b *Backend) Extend(ctx context.Context, r backend.RenewRequest) (backend.RenewReply, time.Time) {
	cmds, _ := wire.Renewals([]backend.RenewRequest{r}, 1)
	reply, sent, err := b.send.insist(ctx, b.send.Ends, cmds[0])
	if err != nil {
		return backend.RenewReply{Err: err}, sent
	}
	v, err := wire.DecodeRenew(r.Key, reply, 0)
	return backend.RenewReply{Verdict: v, Err: err}, sent
}
