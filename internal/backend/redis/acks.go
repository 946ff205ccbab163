package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const (
	ackShare = 10 // a grant waits for at most a tenth of its lease; its renewals may wait for longer
	maxHops  = 4  // maximum number of repeats of a command after a redirection of a cluster or an unknown script
)

// Acks is the number of replicas that must acknowledge a grant, a renewal and a record.
type Acks struct {
	N       int // 0: do not wait for replicas
	Timeout time.Duration
}

// waitForReplicas makes c wait for replicas. It returns an error if the client of c does not
// support that.
func (c *sender) waitForReplicas(r Acks) error {
	if r.N == 0 {
		return nil
	}
	if c.records = c.LikeEnds(); c.records == nil {
		return errors.New("lockcore: New: ReplicaAcks needs a *redis.Client (including one of NewFailoverClient) or a *redis.ClusterClient: a wrapper may send WAIT on another connection")
	}
	c.acks = r
	return nil
}

// within returns r with a timeout that suits the lease of the grant, if c grants one.
func (r Acks) within(c wire.Command) Acks {
	if lease, ok := c.Lease(); ok {
		r.Timeout = min(r.Timeout, time.Duration(lease)*time.Microsecond/ackShare)
	}
	return r
}

// evalAcked is conn.Send together with WAIT, on one connection to the primary of the key. WAIT counts
// only the writes of its own connection. A cluster client cannot route WAIT, because WAIT has no
// key. So evalAcked follows redirections itself.
func (c *sender) evalAcked(ctx context.Context, on redis.UniversalClient, cmd wire.Command) (any, error) {
	if on == c.Ends {
		on = c.records
	}
	v, err := c.redirected(ctx, on, cmd, c.acks.within(cmd))
	conn.ReloadSlots(ctx, on, err)
	return v, err
}

func (c *sender) redirected(ctx context.Context, on redis.UniversalClient, cmd wire.Command, r Acks) (any, error) {
	node, err := masterOf(ctx, on, cmd.Key())
	if err != nil {
		return nil, err
	}
	head, asking := cmd.SHA, false
	for hop := 0; ; hop++ {
		cmd.List = slices.Clone(cmd.List) // go-redis may still read the previous one
		cmd.Use(head)
		v, acks, err := r.send(ctx, node, asking, cmd.List)
		switch {
		case err == nil && cmd.HasEffect(v):
			return v, r.judge(acks)
		case err == nil || hop == maxHops:
			return v, err
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			head = cmd.Full
		default:
			next, ask := follow(ctx, on, err)
			if next == nil {
				return nil, err
			}
			node, asking, head = next, ask, cmd.SHA
		}
	}
}

// send sends one script and WAIT in one pipeline, and so on one connection.
func (r Acks) send(ctx context.Context, node *redis.Client, asking bool, list []any) (any, *redis.IntCmd, error) {
	pipe := node.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	cmd := redis.NewCmd(ctx, list...)
	_ = pipe.Process(ctx, cmd)
	acks := r.wait(ctx, pipe, node)
	_, err := pipe.Exec(ctx)
	return cmd.Val(), acks, conn.CommandErr(cmd, err)
}

// wait adds WAIT to a pipeline to node. WAIT must end before any timeout of the connection. Its
// argument is never 0, because that means no limit.
func (r Acks) wait(ctx context.Context, pipe redis.Pipeliner, node *redis.Client) *redis.IntCmd {
	d := r.Timeout
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)*3/4)
	}
	if limit := node.Options().ReadTimeout; limit > 0 {
		d = min(d, limit*3/4)
	}
	cmd := redis.NewIntCmd(ctx, "wait", r.N, max(d.Milliseconds(), 1))
	_ = pipe.Process(ctx, cmd)
	return cmd
}

// judge returns an error if too few replicas have acknowledged. If WAIT failed, the script has
// taken effect, but the number of replicas is unknown.
func (r Acks) judge(acks *redis.IntCmd) error {
	n, err := acks.Result()
	switch {
	case err != nil:
		return &backend.AcksError{Wanted: r.N, Reason: err.Error()}
	case int(n) < r.N:
		return &backend.AcksError{Acked: int(n), Wanted: r.N}
	}
	return nil
}

// renewPipe returns the pipeline of on for a batch that contains key, and a function that adds the
// last command to it. That command is WAIT. Without ReplicaAcks the function adds nothing.
func (c *sender) renewPipe(ctx context.Context, on redis.UniversalClient, key string) (redis.Pipeliner, func() *redis.IntCmd) {
	if c.acks.N == 0 {
		return on.Pipeline(), func() *redis.IntCmd { return nil }
	}
	node, err := masterOf(ctx, on, key)
	if err != nil { // no primary is known, so no renewal counts as acknowledged
		unknown := redis.NewIntCmd(ctx)
		unknown.SetErr(err)
		return on.Pipeline(), func() *redis.IntCmd { return unknown }
	}
	pipe := node.Pipeline()
	return pipe, func() *redis.IntCmd { return c.acks.wait(ctx, pipe, node) }
}

// judgeRenewals turns renewals that too few replicas have acknowledged into errors. It sends
// renewals that a cluster has redirected again.
func (c *sender) judgeRenewals(
	ctx context.Context, acks *redis.IntCmd, commands []wire.Command, cmds []*redis.Cmd, rs []backend.RenewRequest, res []backend.RenewReply,
) {
	if acks == nil {
		return
	}
	tooFew := c.acks.judge(acks)
	for i := range res {
		if r := &res[i]; r.Err == nil && r.Verdict == backend.VerdictKept {
			r.Err = tooFew
		}
	}
	if c.Single {
		return
	}
	for i, cmd := range cmds { // in a cluster each command is for one key
		if addr, _ := pointsTo(cmd.Err()); addr == "" {
			continue
		}
		v, err := c.evalAcked(ctx, c.Renews, commands[i])
		if err == nil {
			res[i].Verdict, err = wire.DecodeRenew(rs[i].Key, wire.Elements(v), 0)
		}
		res[i].Err = err
	}
}

// masterOf returns the client of the primary that stores key.
func masterOf(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	}
	return nil, errors.New("lockcore: the client has no master that can wait for replicas") // New refuses such clients
}

// pointsTo returns the address in the redirection of a cluster, or "". ask reports whether it is an
// ASK redirection.
func pointsTo(err error) (addr string, ask bool) {
	if err == nil {
		return "", false
	}
	addr, ok := redis.IsMovedError(err)
	if !ok {
		addr, ask = redis.IsAskError(err)
	}
	if i := strings.LastIndexByte(addr, ':'); i >= 0 { // Redis writes an IPv6 address without brackets
		addr = net.JoinHostPort(strings.Trim(addr[:i], "[]"), addr[i+1:])
	}
	return addr, ask
}

// follow returns the primary to which an error of a cluster redirects. It returns nil if the error
// is not a redirection, or if the client has no such primary. go-redis shows only primaries with
// slots. ForEachMaster reloads the slots first.
func follow(ctx context.Context, rdb redis.UniversalClient, err error) (node *redis.Client, ask bool) {
	cluster, ok := rdb.(*redis.ClusterClient)
	addr, ask := pointsTo(err)
	if !ok || addr == "" {
		return nil, false
	}
	var mu sync.Mutex
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if master.Options().Addr == addr {
			node = master
		}
		return nil
	})
	return node, ask
}
