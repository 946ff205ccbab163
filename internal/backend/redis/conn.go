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

// listOf returns the list of a command. The first two elements, for the name of the command and the
// script, are empty.
func listOf(keys []string, args ...any) []any {
	list := make([]any, 3, 3+len(keys)+len(args))
	list[2] = len(keys)
	for _, key := range keys {
		list = append(list, key)
	}
	return append(list, args...)
}

// insist sends a script that is safe to repeat. Within callTimeout it sends the command again after
// a missing reply or a temporary error. sent is the time of the last send.
//
// A server that closes idle connections leaves broken connections in the pool. Over TLS go-redis
// detects that only when it uses them. So the pause after a broken connection is one millisecond,
// for up to 2*ownPoolSize tries. After any other error the pause is longer.
func (c *conn) insist(ctx context.Context, on redis.UniversalClient, s *script, keys []string, args ...any) (reply []any, sent time.Time, err error) {
	reply, sent, _, err = c.insistNoting(ctx, on, s, keys, args...)
	return reply, sent, err
}

// insistNoting is insist. repeated means the same as for send, but for all sends together.
func (c *conn) insistNoting(
	ctx context.Context, on redis.UniversalClient, s *script, keys []string, args ...any,
) (reply []any, sent time.Time, repeated bool, err error) {
	end := time.Now().Add(callTimeout)
	ctx, cancel := context.WithDeadline(ctx, end) // also ends the dial of a repeat
	defer cancel()
	for try, pause := 0, 50*time.Millisecond; ; try++ {
		sent = time.Now()
		var again bool
		reply, again, err = c.send(&limited{Context: ctx, end: end}, on, s, listOf(keys, args...), sent)
		repeated = repeated || again
		wait := time.Millisecond
		if !broken(err) || try >= 2*ownPoolSize {
			wait, pause = pause, 2*pause
		}
		if err == nil || permanent(err) || backend.Ended(ctx) || time.Until(end) <= wait || !backend.Sleep(ctx, wait) { //planted:sent-again
			return reply, sent, repeated, err
		}
	}
}

// more is the reply of a script that had only the effect of a step, see sweep.lua. The command is
// sent again at once. Each decoder refuses this reply.
var more any = int64(-1)

// send sends a script, and sends it again while the reply is more. If on has got no connection, send
// uses the others. sent is the time before the send. list is complete except for the name of the
// command and the script. It may be read after send has returned.
//
// repeated is true if a duplicate of the command may still arrive, or may have arrived:
//   - The command got no reply.
//   - A ClusterClient got no reply to an earlier send of the command.
//   - The client is not one of newConn, so the user configures its retries.
func (c *conn) send(ctx *limited, on redis.UniversalClient, s *script, list []any, sent time.Time) (reply []any, repeated bool, err error) {
	v, err := c.sendStep(ctx, on, s, list, sent)
	for err == nil && v == more { //planted:step-sent-again
		if sent = time.Now(); backend.Ended(ctx) || !sent.Before(ctx.end) {
			err = &notSentError{cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)}
		} else {
			v, err = c.sendStep(ctx, on, s, list, sent)
		}
	}
	repeated = err != nil && mayTakeEffect(err) || !c.own || ctx.sends.lost
	if err != nil {
		reloadSlots(ctx, on, err)
		return nil, repeated, unreadable(err, list)
	}
	reply, ok := v.([]any)
	if !ok {
		ctx.reply[0] = v
		reply = ctx.reply[:]
	}
	return reply, repeated, nil
}

func (c *conn) sendStep(ctx *limited, on redis.UniversalClient, s *script, list []any, sent time.Time) (any, error) {
	v, err := c.sendBy(ctx, on, s, list, c.groups, sent)
	if noConnection(err) {
		return c.sendByOthers(ctx, on, s, list, err)
	}
	return v, err
}

func (c *conn) sendBy(ctx *limited, on redis.UniversalClient, s *script, list []any, groups *serverGroups, sent time.Time) (v any, err error) {
	switch acked := c.acks.N > 0 && s.acked; {
	case !c.own:
		return c.sendBounded(ctx, on, s, list, acked)
	case acked:
		own := ctx.own()
		v, err = c.evalAcked(own, on, s, list)
		ctx.sends.lost = ctx.sends.lost || own.sends.lost
		return v, err
	case groups != nil:
		return groups.eval(ctx, on, s, list, sent)
	}
	return eval(ctx, on, s, list)
}

// sendByOthers sends a script alone, while there is time. err is the error of on.
func (c *conn) sendByOthers(ctx *limited, on redis.UniversalClient, s *script, list []any, err error) (any, error) {
	var v any
	for other := range c.others(on) {
		if !time.Now().Before(ctx.end) {
			break
		}
		if v, err = c.sendBy(ctx, other, s, list, nil, ctx.end); !noConnection(err) {
			break
		}
	}
	return v, err
}

// sendBounded sends a script by a client of the user, which may ignore ctx.
func (c *conn) sendBounded(ctx *limited, on redis.UniversalClient, s *script, list []any, acked bool) (any, error) {
	timed, cancel := context.WithDeadline(ctx.parent(), ctx.end)
	defer cancel()
	return c.bounded(timed, func() (any, error) {
		if acked {
			return c.evalAcked(timed, on, s, list)
		}
		return evalOn(timed, on, s, list)
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
func eval(l *limited, on redis.UniversalClient, s *script, list []any) (any, error) {
	ctx := l.own()
	if _, ok := on.(*redis.ClusterClient); ok {
		defer func() { l.sends.lost = l.sends.lost || ctx.sends.lost || !ctx.sends.seen }() // a hook of the user may replace ctx
	}
	copy(list, s.sha)
	cmd := redis.NewCmd(ctx, list...)
	err := on.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		list = slices.Clone(list)
		copy(list, s.text)
		cmd = redis.NewCmd(ctx, list...)
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// evalOn is eval for a wrapper. It only calls methods that the wrapper may override.
func evalOn(ctx context.Context, on redis.UniversalClient, s *script, list []any) (any, error) {
	list = slices.Clone(list)
	for i, arg := range list {
		switch p := arg.(type) {
		case *string:
			list[i] = *p
		case *int64:
			list[i] = *p
		}
	}
	n, _ := list[2].(int)
	keys := make([]string, n)
	for i := range keys {
		keys[i], _ = list[3+i].(string)
	}
	return s.Run(ctx, on, keys, list[3+n:]...).Result()
}
