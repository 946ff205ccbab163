package lockcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	callTimeout = time.Second          // of one command; it is sent again with the same id
	maxHeldUp   = 256                  // calls on a client that ignores ctx which may be left behind
	quick       = 8 * time.Millisecond // a ClusterClient of ours waits at least this long before it sends a command again, see ownCluster
	ownPoolSize = 16
	scriptBlock = 100 // keys in one renewal script
)

var (
	errHeldUp      = errors.New("too many calls are held up")
	errDialsHeldUp = errors.New("too many dials are held up") // a later one may succeed: go-redis gives up dials that hang
)

// conn is the way to Redis: connections of our own wherever we can make them, so that neither a release nor a renewal
// ever queues behind the user's own commands or behind our waiters.
type conn struct {
	calls  *wire                 // acquire, inspect
	ends   *wire                 // release, rotate, complete, leave, Extend, Revoke, Clear: never behind waiters
	renews redis.UniversalClient // renewals, which may take longer than a call, and the model of the subscription's
	// own: all were made here. They obey deadlines and never send a command twice on their own (a ClusterClient may).
	own bool
	// single: one server, so that PUBLISH counts everybody and one script may take many keys.
	single bool
	acks   ReplicaAcks // N is 0 without
	heldUp atomic.Int64
	cut    context.CancelFunc // ends our own connections
	slots  *slotMap           // of a cluster, shared by our own clients
	dials  *heldUpDials       // of our own clients

	records   *wire // with acks, in place of ends for what waits for replicas: rotate, complete, Extend
	newcomers newcomers
}

func newConn(rdb redis.UniversalClient, batches bool) (*conn, error) {
	dials := new(heldUpDials)
	own := func(one func(context.Context, time.Duration) redis.UniversalClient, single bool) *conn {
		ctx, cut := context.WithCancel(context.Background())
		return &conn{
			dials: dials,
			calls: &wire{UniversalClient: one(ctx, callTimeout), batches: batches}, ends: &wire{UniversalClient: one(ctx, callTimeout), batches: batches},
			renews: one(ctx, maxLease), own: true, single: single, cut: cut,
		}
	}
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New("lockcore: New: client is nil")
	case *redis.Ring:
		return nil, errors.New("lockcore: New: a redis.Ring shards without a quorum and moves keys when a node is down; use a Client, a failover client or a ClusterClient")
	case *redis.Client:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.Client")
		}
		if c.Options().Addr == "FailoverClient" { // its dialer follows the master only together with its own pool
			w := &wire{UniversalClient: c}
			return &conn{calls: w, ends: w, renews: c, single: true}, nil
		}
		return own(func(ctx context.Context, limit time.Duration) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			return ownClient(ctx, &o, dials, errCutOff)
		}, true), nil
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.ClusterClient")
		}
		slots := &slotMap{newClient: c.Options().NewClient}
		made := own(func(ctx context.Context, limit time.Duration) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			return ownCluster(ctx, &o, slots, dials, errCutOff)
		}, false)
		made.slots = slots
		return made, nil
	default: // somebody's wrapper: it may ignore ctx, send twice, and be a cluster
		w := &wire{UniversalClient: rdb}
		return &conn{calls: w, ends: w, renews: rdb}, nil
	}
}

// errCutOff is the error of a dial that the end of Close has canceled: nothing was sent.
var errCutOff error = &net.OpError{Op: "dial", Err: errors.New("the Locker was closed")}

// ownClient makes a client whose connections end with ctx, and which sends nothing that it was not asked to. over is
// the error of a dial after ctx ended.
func ownClient(ctx context.Context, o *redis.Options, dials *heldUpDials, over error) *redis.Client {
	c := *o
	c.Dialer = endWith(ctx, c.Dialer, dials, over)
	c.ContextTimeoutEnabled, c.MaxRetries, c.MinRetryBackoff = true, -1, 0
	c.PoolSize, c.MinIdleConns, c.MaxIdleConns, c.MaxActiveConns = max(c.PoolSize, ownPoolSize), 0, 0, 0
	c.MaxConcurrentDials = 0 // PoolSize: nothing bounds the time that a call waits for another one's dial
	c.CredentialsProviderContext, c.OnConnect = timedCredentials(c.CredentialsProviderContext), timedConnect(c.OnConnect)
	c.DialerRetries, c.PushNotificationProcessor, c.MaintNotificationsConfig = 1, nil, noNotices()
	c.DialTimeout, c.PoolTimeout = bound(c.DialTimeout, callTimeout), bound(c.PoolTimeout, callTimeout/2)
	return redis.NewClient(&c)
}

func ownCluster(ctx context.Context, o *redis.ClusterOptions, slots *slotMap, dials *heldUpDials, over error) *redis.ClusterClient {
	c := *o
	slots.share(&c)
	if c.Dialer == nil {
		c.Dialer = redis.NewDialer(&redis.Options{DialTimeout: c.DialTimeout, TLSConfig: c.TLSConfig})
	}
	c.Dialer = endWith(ctx, c.Dialer, dials, over)
	c.ContextTimeoutEnabled, c.MaxRetries, c.MinRetryBackoff = true, -1, quick
	c.MaxRetryBackoff = 0 // 0 is go-redis's default; a shorter one would cut MinRetryBackoff
	c.PoolSize, c.MinIdleConns, c.MaxIdleConns, c.MaxActiveConns = max(c.PoolSize, ownPoolSize), 0, 0, 0
	c.MaxConcurrentDials = 0 // PoolSize: nothing bounds the time that a call waits for another one's dial
	c.CredentialsProviderContext, c.OnConnect = timedCredentials(c.CredentialsProviderContext), timedConnect(c.OnConnect)
	c.ReadOnly, c.RouteByLatency, c.RouteRandomly = false, false, false // never lock state from a replica
	// A script is routed by its keys. Otherwise the first command of each client would wait for a COMMAND, which goes
	// to any node and is not bounded by ctx.
	c.DisableRoutingPolicies = true
	c.DialerRetries, c.PushNotificationProcessor, c.MaintNotificationsConfig = 1, nil, noNotices()
	c.DialTimeout, c.PoolTimeout = bound(c.DialTimeout, callTimeout), bound(c.PoolTimeout, callTimeout/2)
	return redis.NewClusterClient(&c)
}

// bound is d, or limit where d is longer or means something else.
func bound(d, limit time.Duration) time.Duration {
	if d <= 0 {
		return limit
	}
	return min(d, limit)
}

// noNotices: a live client writes to the configuration that its Options point to, so ours must not be that one. A lease
// outlives what the notices would announce.
func noNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// cutOff ends our own connections, and with them the commands under way.
func (c *conn) cutOff() {
	if c.own {
		c.cut()
	}
}

func (c *conn) close() {
	c.cutOff() // so that no command under way delays the Close calls below
	if c.own {
		_ = c.calls.Close() // it complains that its connections are closed already
		_ = c.ends.Close()
		_ = c.renews.Close()
		c.closeAcks()
	}
}

// run runs a script, bounded by callTimeout and ctx's deadline also on a client that ignores both. repeated: a
// duplicate of the command may still arrive, or this was one, because it got no reply or the client may have sent it
// twice. A client that is not ours may always have sent it twice: its owner configures its retries, and they do not
// show.
func (c *conn) run(ctx context.Context, on *wire, s *script, keys []string, args ...any) (reply []any, repeated bool, err error) {
	return c.send(&limited{Context: ctx, limit: callTimeout}, on, s, listOf(keys, args))
}

// listOf returns the list of a command, without its name and the script.
func listOf(keys []string, args []any) []any {
	list := make([]any, 3, 3+len(keys)+len(args))
	list[2] = len(keys)
	for _, key := range keys {
		list = append(list, key)
	}
	return append(list, args...)
}

// insist is run for a script that may act twice without harm. Within callTimeout it sends the command again after no
// reply or a temporary error. sent is the time at which the answered command was sent.
//
// A server that closes idle connections leaves a pool of broken ones behind. Over TLS go-redis detects that only by
// using them. So the pause after a broken connection is one millisecond, for as many tries as a pool has connections.
// After any other error it is longer.
func (c *conn) insist(ctx context.Context, on *wire, s *script, keys []string, args ...any) (reply []any, sent time.Time, err error) {
	end := time.Now().Add(callTimeout)
	ctx, cancel := context.WithDeadline(ctx, end) // ends the dial of a repeat too
	defer cancel()
	for try, pause := 0, 50*time.Millisecond; ; try++ {
		sent = time.Now()
		reply, _, err = c.send(&limited{Context: ctx, limit: end.Sub(sent)}, on, s, listOf(keys, args))
		wait := time.Millisecond
		if !broken(err) || try >= 2*ownPoolSize {
			wait, pause = pause, 2*pause
		}
		if err == nil || permanent(err) || ended(ctx) || time.Until(end) <= wait || !sleep(ctx, wait) { //planted:sent-again
			return reply, sent, err
		}
	}
}

// broken reports whether the connection ended before the reply.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// send is run for a list that is complete but for the name of the command and the script. The list belongs to the command from here on,
// for it may be read as long as that is under way.
func (c *conn) send(ctx *limited, on *wire, s *script, list []any) (reply []any, repeated bool, err error) {
	sent := time.Now()
	ctx.end = sent.Add(min(ctx.limit, callTimeout))
	var v any
	do := eval
	switch {
	case c.acks.waits(s):
		do = c.evalAcked
	case !c.own:
		do = evalOn
	}
	if c.own {
		v, err = do(ctx, on, s, list)
	} else {
		ctx, cancel := context.WithDeadline(ctx.parent(), ctx.end)
		defer cancel()
		send := do // the closure must not move do to the heap
		v, err = c.bounded(ctx, func() (any, error) { return send(ctx, on, s, list) })
	}
	repeated = err != nil && unanswered(err) || !c.own || !c.single && time.Since(sent) >= quick
	if err != nil {
		stale(ctx, on.UniversalClient, err)
		return nil, repeated, unreadable(err, list)
	}
	reply, ok := v.([]any)
	if !ok {
		reply = []any{v}
	}
	return reply, repeated, nil
}

// stale has the slots of a cluster read anew when a server did not answer, for another may have taken its place: go-redis asks for them once a
// minute, and when a server redirects it.
func stale(ctx context.Context, rdb redis.UniversalClient, err error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok && err != nil && !errors.As(err, new(redis.Error)) {
		cluster.ReloadState(ctx) // in the background, never faster than five times a second
	}
}

// eval sends the script by its digest, and in full if the server has forgotten it.
func eval(ctx context.Context, on *wire, s *script, list []any) (any, error) {
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

// evalOn is eval by the methods that somebody's wrapper may have made its own.
func evalOn(ctx context.Context, on *wire, s *script, list []any) (any, error) {
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
	return s.Run(ctx, on.UniversalClient, keys, list[3+n:]...).Result()
}

// unanswered says that the command may have been, or may still be, run although there was no answer.
func unanswered(err error) bool {
	var op *net.OpError
	switch {
	case err == nil, errors.As(err, new(redis.Error)), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, errHeldUp):
		return false
	case errors.As(err, &op) && op.Op == "dial":
		return false
	}
	return true
}

// commandErr returns the error of a command of a pipeline. exec is what Exec returned. If a new connection cannot log in,
// a client of one server returns the error only from Exec. Nothing was sent then.
func commandErr(cmd *redis.Cmd, exec error) error {
	if cmd.Err() == nil && cmd.Val() == nil {
		return exec
	}
	return cmd.Err()
}

// loginRefused reports whether a connection could not log in, as while a password is rotated.
func loginRefused(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH"))
}

// permanent says that asking again will not help: the answer is about us or the key, not about the moment.
func permanent(err error) bool {
	var re redis.Error
	if errors.As(err, new(*dataError)) {
		return true
	}
	if !errors.As(err, &re) {
		return errors.Is(err, redis.ErrClosed) || errors.Is(err, errHeldUp)
	}
	text := re.Error()
	for _, p := range []string{"-READONLY", "-OOM", "-MISCONF", "-NOREPLICAS"} {
		if strings.Contains(text, p) { // Redis 6 wraps what a command in a script answers into "ERR Error running script"
			return false
		}
	}
	for _, p := range []string{"NOPERM", "WRONGTYPE", "NOAUTH", "WRONGPASS", "ERR unknown", "ERR Error", "ERR user_script", "ERR The user executing", "ERR ACL failure"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// number and text read a reply. A reply of another shape is somebody else's data or another release's, never a grant.
func number(reply []any, i int) (int64, error) {
	if i < len(reply) {
		if n, ok := reply[i].(int64); ok && n >= 0 { // less is what absurd data overflows to
			return n, nil
		}
	}
	return 0, fmt.Errorf("lockcore: unexpected reply: no number at %d of %d", i, len(reply))
}

func text(reply []any, i int) string {
	if i < len(reply) {
		if s, ok := reply[i].(string); ok {
			return s
		}
	}
	return ""
}
