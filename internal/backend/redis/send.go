package redis

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/batch"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// sender sends commands: alone, in groups, or with WAIT.
type sender struct {
	*conn.Conn
	acks    Acks                  // N is 0 without ReplicaAcks
	records redis.UniversalClient // with acks: rotate, complete and Extend, which wait for replicas; otherwise nil
	groups  *batch.Servers        // nil: send each call alone
}

// newSender returns a sender on rdb. Groups have no effect on a client of the user, and none with
// acks, because WAIT counts only the writes of its own connection.
func newSender(rdb redis.UniversalClient, o *Options) (*sender, error) {
	connections, err := conn.New(rdb, o.greet())
	if err != nil {
		return nil, err
	}
	c := &sender{Conn: connections}
	if err := c.waitForReplicas(o.Acks); err != nil {
		c.close()
		return nil, err
	}
	if !o.NoGroups && c.Own && c.acks.N == 0 {
		c.groups = batch.New(c.Ends, o.Grouped)
	}
	return c, nil
}

func (c *sender) close() {
	if c.groups != nil {
		c.groups.Stop()
		defer c.groups.Wait()
	}
	c.Close()
	if c.Own && c.records != nil {
		_ = c.records.Close()
	}
}

// insist sends a script that is safe to repeat. Within backend.CallTimeout it sends the command again after
// a missing reply or a temporary error. sent is the time of the last send.
//
// A server that closes idle connections leaves broken connections in the pool. Over TLS go-redis
// detects that only when it uses them. So the pause after a broken connection is one millisecond,
// for up to 2*conn.PoolSize tries. After any other error the pause is longer.
func (c *sender) insist(ctx context.Context, on redis.UniversalClient, cmd wire.Command) (reply []any, sent time.Time, err error) {
	reply, sent, _, err = c.insistNoting(ctx, on, cmd)
	return reply, sent, err
}

// insistNoting is insist. repeated means the same as for once, but for all sends together.
func (c *sender) insistNoting(ctx context.Context, on redis.UniversalClient, cmd wire.Command) (reply []any, sent time.Time, repeated bool, err error) {
	end := time.Now().Add(backend.CallTimeout)
	ctx, cancel := context.WithDeadline(ctx, end) // also ends the dial of a repeat
	defer cancel()
	for try, pause := 0, 50*time.Millisecond; ; try++ {
		sent = time.Now()
		var again bool
		reply, again, err = c.once(&conn.Limited{Context: ctx, End: end}, on, cmd, sent)
		repeated = repeated || again
		wait := time.Millisecond
		if !conn.Broken(err) || try >= 2*conn.PoolSize {
			wait, pause = pause, 2*pause
		}
		if err == nil || conn.Permanent(err) || backend.Ended(ctx) || time.Until(end) <= wait || !backend.Sleep(ctx, wait) { //planted:sent-again
			return reply, sent, repeated, err
		}
		cmd.List = slices.Clone(cmd.List) // go-redis may still read the previous one
	}
}

// once sends a command, and sends it again while the reply is only a step. If on has got no connection,
// once uses the others. sent is the time before the send. The list of cmd may be read after once has
// returned.
//
// repeated is true if a duplicate of the command may still arrive, or may have arrived:
//   - The command got no reply.
//   - A ClusterClient got no reply to an earlier send of the command.
//   - The client is not one of conn.New, so the user configures its retries.
func (c *sender) once(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, sent time.Time) (reply []any, repeated bool, err error) {
	v, err := c.sendStep(ctx, on, cmd, sent)
	for err == nil && wire.IsStep(v) { //planted:step-sent-again
		if sent = time.Now(); backend.Ended(ctx) || !sent.Before(ctx.End) {
			err = &conn.NotSentError{Cause: cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)}
		} else {
			v, err = c.sendStep(ctx, on, cmd, sent)
		}
	}
	repeated = err != nil && conn.MayTakeEffect(err) || !c.Own || ctx.Sends.Lost
	if err != nil {
		conn.ReloadSlots(ctx, on, err)
		return nil, repeated, conn.Unreadable(err, cmd)
	}
	reply, ok := v.([]any)
	if !ok {
		ctx.Reply[0] = v
		reply = ctx.Reply[:]
	}
	return reply, repeated, nil
}

func (c *sender) sendStep(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, sent time.Time) (any, error) {
	v, err := c.sendBy(ctx, on, cmd, c.groups, sent)
	if conn.NoConnection(err) {
		return c.sendByOthers(ctx, on, cmd, err)
	}
	return v, err
}

func (c *sender) sendBy(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, groups *batch.Servers, sent time.Time) (v any, err error) {
	switch acked := c.acks.N > 0 && cmd.Acked; {
	case !c.Own:
		return c.sendBounded(ctx, on, cmd, acked)
	case acked:
		own := ctx.Own()
		v, err = c.evalAcked(own, on, cmd)
		ctx.Sends.Lost = ctx.Sends.Lost || own.Sends.Lost
		return v, err
	case groups != nil:
		return groups.Send(ctx, on, cmd, sent)
	}
	return conn.Send(ctx, on, cmd)
}

// sendByOthers sends a script alone, while there is time. err is the error of on.
func (c *sender) sendByOthers(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, err error) (any, error) {
	var v any
	for other := range c.Others(on) {
		if !time.Now().Before(ctx.End) {
			break
		}
		if v, err = c.sendBy(ctx, other, cmd, nil, ctx.End); !conn.NoConnection(err) {
			break
		}
	}
	return v, err
}

// sendBounded sends a script by a client of the user, which may ignore ctx.
func (c *sender) sendBounded(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, acked bool) (any, error) {
	timed, cancel := context.WithDeadline(ctx.Parent(), ctx.End)
	defer cancel()
	return c.Bounded(timed, func() (any, error) {
		if acked {
			return c.evalAcked(timed, on, cmd)
		}
		return cmd.Run(timed, on)
	})
}
