package redis

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const (
	callTimeout = backend.CallTimeout
	maxHeldUp   = 256 // maximum number of commands on a client that ignores ctx, and of dials to an address, that may outlive their callers
)

// conn contains the connections to Redis. If it can, it makes its own clients, so that releases and
// renewals do not queue behind commands of the user or of waiters.
type conn struct {
	calls   redis.UniversalClient // acquire, inspect
	ends    redis.UniversalClient // release, rotate, complete, leave, Extend, Revoke, Clear, and all groups; its commands never queue behind acquires that are sent alone
	records redis.UniversalClient // with acks: rotate, complete and Extend, which wait for replicas; otherwise nil
	renews  redis.UniversalClient // renewals, which may take longer than a call; the client of the subscription has the same options

	own        bool               // newConn made all clients: they obey deadlines, and only a ClusterClient may send a command twice
	single     bool               // one server: PUBLISH counts all receivers, and a script may take many keys
	acks       Acks               // N is 0 without ReplicaAcks
	cut        context.CancelFunc // ends own connections
	slots      *slotMap           // of a cluster, shared by own clients
	renewDials *dials             // of renews, if it is an own client
	endpoints  *endpoints         // of own clients
	heldUp     atomic.Int64
	borrowed   atomic.Int64  // sends that use a client of other commands, see others
	groups     *serverGroups // nil: send each call alone
}

func newConn(rdb redis.UniversalClient) (*conn, error) {
	own := func(one func(context.Context, time.Duration, *dials) redis.UniversalClient, single bool) *conn {
		ctx, cut := context.WithCancel(context.Background())
		to := newEndpoints()
		renewals := &dials{to: to}
		return &conn{
			renewDials: renewals, endpoints: to,
			calls: one(ctx, callTimeout, &dials{to: to, patience: patience}), ends: one(ctx, callTimeout, &dials{to: to, patience: patience}),
			renews: one(ctx, maxRenewTime, renewals), own: true, single: single, cut: cut,
		}
	}
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New("lockcore: New: client is nil")
	case *redis.Ring:
		return nil, errRing
	case *redis.Client:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.Client")
		}
		if c.Options().Addr == "FailoverClient" { // a copy would not work: its dialer follows the primary only together with its own pool
			return &conn{calls: c, ends: c, renews: c, single: true}, nil
		}
		return own(func(ctx context.Context, limit time.Duration, d *dials) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			return ownClient(ctx, &o, d, errCutOff)
		}, true), nil
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.ClusterClient")
		}
		if c.Options().ClusterSlots != nil {
			return nil, ErrClusterSlots
		}
		slots := &slotMap{newClient: c.Options().NewClient}
		made := own(func(ctx context.Context, limit time.Duration, d *dials) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			return ownCluster(ctx, &o, slots, d, errCutOff)
		}, false)
		made.slots = slots
		return made, nil
	case interface{ Options() *redis.RingOptions }: // a wrapper that embeds a Ring
		return nil, errRing
	case interface{ Options() *redis.ClusterOptions }: // a wrapper that embeds a ClusterClient
		if c.Options().ClusterSlots != nil {
			return nil, ErrClusterSlots
		}
	}
	// A wrapper may ignore ctx, send a command twice, or be a cluster.
	return &conn{calls: rdb, ends: rdb, renews: rdb}, nil
}

// cutOff closes conn's own connections, which ends the commands in flight.
func (c *conn) cutOff() {
	if c.own {
		c.cut()
	}
}

func (c *conn) close() {
	if c.groups != nil {
		c.groups.stop()
		defer c.groups.wait()
	}
	c.cutOff() // so that no command in flight delays the Close calls below
	if c.own {
		_ = c.calls.Close() // it returns an error because the connections are closed already
		_ = c.ends.Close()
		_ = c.renews.Close()
		if c.records != nil && c.records != c.ends {
			_ = c.records.Close()
		}
	}
}

// insist sends a script that is safe to repeat. Within callTimeout it sends the command again after
// a missing reply or a temporary error. sent is the time of the last send.
//
// A server that closes idle connections leaves broken connections in the pool. Over TLS go-redis
// detects that only when it uses them. So the pause after a broken connection is one millisecond,
// for up to 2*ownPoolSize tries. After any other error the pause is longer.
func (c *conn) insist(ctx context.Context, on redis.UniversalClient, cmd wire.Command) (reply []any, sent time.Time, err error) {
	reply, sent, _, err = c.insistNoting(ctx, on, cmd)
	return reply, sent, err
}

// insistNoting is insist. repeated means the same as for send, but for all sends together.
func (c *conn) insistNoting(ctx context.Context, on redis.UniversalClient, cmd wire.Command) (reply []any, sent time.Time, repeated bool, err error) {
	end := time.Now().Add(callTimeout)
	ctx, cancel := context.WithDeadline(ctx, end) // also ends the dial of a repeat
	defer cancel()
	for try, pause := 0, 50*time.Millisecond; ; try++ {
		sent = time.Now()
		var again bool
		reply, again, err = c.send(&limited{Context: ctx, end: end}, on, cmd, sent)
		repeated = repeated || again
		wait := time.Millisecond
		if !broken(err) || try >= 2*ownPoolSize {
			wait, pause = pause, 2*pause
		}
		if err == nil || permanent(err) || backend.Ended(ctx) || time.Until(end) <= wait || !backend.Sleep(ctx, wait) { //planted:sent-again
			return reply, sent, repeated, err
		}
		cmd.List = slices.Clone(cmd.List) // go-redis may still read the previous one
	}
}

// send sends a command, and sends it again while the reply is only a step. If on has got no connection,
// send uses the others. sent is the time before the send. The list of cmd may be read after send has
// returned.
//
// repeated is true if a duplicate of the command may still arrive, or may have arrived:
//   - The command got no reply.
//   - A ClusterClient got no reply to an earlier send of the command.
//   - The client is not one of newConn, so the user configures its retries.
func (c *conn) send(ctx *limited, on redis.UniversalClient, cmd wire.Command, sent time.Time) (reply []any, repeated bool, err error) {
	v, err := c.sendStep(ctx, on, cmd, sent)
	for err == nil && wire.IsStep(v) { //planted:step-sent-again
		if sent = time.Now(); backend.Ended(ctx) || !sent.Before(ctx.end) {
			err = &notSentError{cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)}
		} else {
			v, err = c.sendStep(ctx, on, cmd, sent)
		}
	}
	repeated = err != nil && mayTakeEffect(err) || !c.own || ctx.sends.lost
	if err != nil {
		reloadSlots(ctx, on, err)
		return nil, repeated, unreadable(err, cmd)
	}
	reply, ok := v.([]any)
	if !ok {
		ctx.reply[0] = v
		reply = ctx.reply[:]
	}
	return reply, repeated, nil
}

func (c *conn) sendStep(ctx *limited, on redis.UniversalClient, cmd wire.Command, sent time.Time) (any, error) {
	v, err := c.sendBy(ctx, on, cmd, c.groups, sent)
	if noConnection(err) {
		return c.sendByOthers(ctx, on, cmd, err)
	}
	return v, err
}

func (c *conn) sendBy(ctx *limited, on redis.UniversalClient, cmd wire.Command, groups *serverGroups, sent time.Time) (v any, err error) {
	switch acked := c.acks.N > 0 && cmd.Acked; {
	case !c.own:
		return c.sendBounded(ctx, on, cmd, acked)
	case acked:
		own := ctx.own()
		v, err = c.evalAcked(own, on, cmd)
		ctx.sends.lost = ctx.sends.lost || own.sends.lost
		return v, err
	case groups != nil:
		return groups.eval(ctx, on, cmd, sent)
	}
	return eval(ctx, on, cmd)
}

// sendByOthers sends a script alone, while there is time. err is the error of on.
func (c *conn) sendByOthers(ctx *limited, on redis.UniversalClient, cmd wire.Command, err error) (any, error) {
	var v any
	for other := range c.others(on) {
		if !time.Now().Before(ctx.end) {
			break
		}
		if v, err = c.sendBy(ctx, other, cmd, nil, ctx.end); !noConnection(err) {
			break
		}
	}
	return v, err
}

// sendBounded sends a script by a client of the user, which may ignore ctx.
func (c *conn) sendBounded(ctx *limited, on redis.UniversalClient, cmd wire.Command, acked bool) (any, error) {
	timed, cancel := context.WithDeadline(ctx.parent(), ctx.end)
	defer cancel()
	return c.bounded(timed, func() (any, error) {
		if acked {
			return c.evalAcked(timed, on, cmd)
		}
		return cmd.Run(timed, on)
	})
}

// reloadSlots reloads the slots of a cluster if a server did not reply, because another server may
// have replaced it. Without this, go-redis reloads them once a minute, and when a server redirects
// a command.
func reloadSlots(ctx context.Context, rdb redis.UniversalClient, err error) {
	if err == nil || errors.As(err, new(redis.Error)) || errors.As(err, new(*notSentError)) || errors.Is(err, context.Canceled) {
		return
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx) // asynchronous, at most five times a second
	}
}

// eval sends a script by its digest. If the server does not have the script, eval sends it in full.
func eval(l *limited, on redis.UniversalClient, c wire.Command) (any, error) {
	ctx := l.own()
	if _, ok := on.(*redis.ClusterClient); ok {
		defer func() { l.sends.lost = l.sends.lost || ctx.sends.lost || !ctx.sends.seen }() // a hook of the user may replace ctx
	}
	c.Use(c.SHA)
	cmd := redis.NewCmd(ctx, c.List...)
	err := on.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.List = slices.Clone(c.List)
		c.Use(c.Full)
		cmd = redis.NewCmd(ctx, c.List...)
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
