package lockcore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	defaultAckTimeout = 250 * time.Millisecond
	minAckTimeout     = 10 * time.Millisecond
	maxAckTimeout     = 750 * time.Millisecond // of the second that a command has

	ackShare = 10 // a grant waits for no longer than this part of its lease; its renewals may wait for an eighth

	maxHops = 4 // redirections of a cluster, and scripts that a server has forgotten, per command
)

// ReplicaAcks makes what must survive a failover count only when replicas have acknowledged it: a grant, a renewal and a record. It narrows
// the window in which a failover can make two holders to one case: the replica that is promoted is not one of the N. Set N to the number of
// replicas to close that too; an isolated primary then grants nothing. It is an acknowledgment from memory, not from disk.
//
// With too few in time a grant does not run: the call goes on asking, as it does when Redis does not answer, while others find the key
// busy; when its Wait is over the key is given back and the error is a *ReplicaAcksError. A renewal does not count: the lease ends as if Redis were
// away, and RenewFailed tells the Observer why. A record is sent again in the background while the lease is valid, then reported as CompletionFailed. What is done is replayed all the same.
//
// Not acknowledged: a release, and with it MinHold (lost, the key is held until the lease's end), and a hand-off inside a process, which goes
// on under the same grant. Each acquire and renewal takes one more round trip between the servers, in the same one from the process (EVALSHA and WAIT, which an ACL must allow);
// acquires do not travel together, see Options.NoBatching. Records wait on a pool of their own, so that releases do not stand behind them while replicas are away.
type ReplicaAcks struct {
	// N is how many replicas must have it, 1 or more. 0: none is waited for.
	N int
	// Timeout is how long to wait for them. Default 250 ms. 10 ms to 750 ms. At most three quarters of the client's ReadTimeout are used, and
	// for a grant at most a tenth of its lease: a key whose renewals could not wait as long is refused from the start. So the default takes a
	// Lease of 2.5 s to be used in full, 750 ms one of 7.5 s, and replicas that are 300 ms away a Lease over 3 s.
	Timeout time.Duration
}

func (r ReplicaAcks) validate() error {
	switch {
	case r.N < 0:
		return fmt.Errorf("lockcore: ReplicaAcks.N is %d, must not be negative", r.N)
	case r.N == 0 && r.Timeout != 0:
		return fmt.Errorf("lockcore: ReplicaAcks.Timeout is %v without an N", r.Timeout)
	case r.Timeout != 0 && (r.Timeout < minAckTimeout || r.Timeout > maxAckTimeout):
		return fmt.Errorf("lockcore: ReplicaAcks.Timeout is %v, must be between %v and %v", r.Timeout, minAckTimeout, maxAckTimeout)
	}
	return nil
}

func (r ReplicaAcks) withDefaults() ReplicaAcks {
	if r.Timeout == 0 {
		r.Timeout = defaultAckTimeout
	}
	return r
}

// ErrReplicaAcks: Redis has it, but too few replicas said so in time. The error is a *ReplicaAcksError.
var ErrReplicaAcks = notRun("lockcore: too few replicas acknowledged")

// ReplicaAcksError says how many replicas had acknowledged what was to survive a failover.
type ReplicaAcksError struct {
	Acked, Wanted int
	// Reason is what went wrong with the count, if there was none. It is not wrapped: it says nothing about the grant.
	Reason string
}

func (e *ReplicaAcksError) Error() string {
	s := fmt.Sprintf("lockcore: %d of %d replicas acknowledged", e.Acked, e.Wanted)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is makes a ReplicaAcksError match ErrReplicaAcks, ErrUnavailable and ErrNotRun.
func (e *ReplicaAcksError) Is(target error) bool {
	return target == ErrReplicaAcks || target == ErrUnavailable || target == ErrNotRun
}

// ErrorType names the class for telemetry.
func (e *ReplicaAcksError) ErrorType() string { return "replica_acks" }

// acked says for each script that waits for replicas where its answer has a 1 if there is something to acknowledge, and where in its list a
// grant's lease is, in µs. What it has written last on its connection is what WAIT counts, so a repeat that finds its work done must write too.
var acked = map[*script]struct{ answer, lease int }{
	acquireScript: {answer: 0, lease: 7}, rotateScript: {answer: 1, lease: 14}, completeScript: {}, renewScript: {},
}

// waits says whether what s does counts only with replicas.
func (r ReplicaAcks) waits(s *script) bool {
	if r.N == 0 {
		return false
	}
	_, ok := acked[s]
	return ok
}

// within is r for a grant whose lease is at i of its list; 0: it is no grant.
func (r ReplicaAcks) within(list []any, i int) ReplicaAcks {
	if i == 0 {
		return r
	}
	lease, ok := list[i].(int64)
	if p, is := list[i].(*int64); is {
		lease, ok = *p, true
	}
	if ok {
		r.Timeout = min(r.Timeout, time.Duration(lease)*time.Microsecond/ackShare)
	}
	return r
}

// evalAcked is eval on one connection of the key's master, together with WAIT, which counts only what its own connection has written. No
// client of a cluster does that by itself: it sends a command without a key anywhere, so redirections are followed here.
func (c *conn) evalAcked(ctx context.Context, on *wire, s *script, list []any) (any, error) {
	if on == c.ends {
		on = c.records
	}
	at := acked[s]
	v, err := c.redirected(ctx, on.UniversalClient, s, list, c.acks.within(list, at.lease), at.answer)
	stale(ctx, on.UniversalClient, err)
	return v, err
}

func (c *conn) redirected(ctx context.Context, on redis.UniversalClient, s *script, list []any, r ReplicaAcks, answer int) (any, error) {
	node, err := masterOf(ctx, on, keyOf(list))
	if err != nil {
		return nil, err
	}
	head, asking := s.sha, false
	for hop := 0; ; hop++ {
		list = slices.Clone(list) // the one before may still be read
		copy(list, head)
		v, acks, err := r.send(ctx, node, asking, list)
		switch {
		case err == nil && counts(v, answer):
			return v, r.judge(acks)
		case err == nil || hop == maxHops:
			return v, err
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			head = s.text
		default:
			next, ask, done := c.newcomers.follow(ctx, on, err)
			if next == nil {
				return nil, err
			}
			defer done() // after maxHops at most
			node, asking, head = next, ask, s.sha
		}
	}
}

// counts says whether an answer has a 1 at i.
func counts(v any, i int) bool {
	reply, ok := v.([]any)
	if !ok {
		reply = []any{v}
	}
	n, err := number(reply, i)
	return err == nil && n == 1
}

// send sends one script and WAIT in one pipeline, which is one connection.
func (r ReplicaAcks) send(ctx context.Context, node *redis.Client, asking bool, list []any) (any, *redis.IntCmd, error) {
	pipe := node.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	cmd := redis.NewCmd(ctx, list...)
	_ = pipe.Process(ctx, cmd)
	acks := r.wait(ctx, pipe, node)
	_, err := pipe.Exec(ctx)
	return cmd.Val(), acks, commandErr(cmd, err)
}

// wait adds WAIT to a pipeline to node. It ends before any time-out of the connection, and never waits for ever, which 0 would mean.
func (r ReplicaAcks) wait(ctx context.Context, pipe redis.Pipeliner, node *redis.Client) *redis.IntCmd {
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

// judge is the error of too few. That WAIT failed leaves the script done and the replicas unknown.
func (r ReplicaAcks) judge(acks *redis.IntCmd) error {
	n, err := acks.Result()
	switch {
	case err != nil:
		return &ReplicaAcksError{Wanted: r.N, Reason: err.Error()}
	case int(n) < r.N:
		return &ReplicaAcksError{Acked: int(n), Wanted: r.N}
	}
	return nil
}

// keyOf is the first key of a script's list.
func keyOf(list []any) string {
	if p, ok := list[3].(*string); ok {
		return *p
	}
	key, _ := list[3].(string)
	return key
}

// renewPipe is the pipeline for a batch, of which key is one, and what ends it: WAIT, or nothing.
func (c *conn) renewPipe(ctx context.Context, key string) (redis.Pipeliner, func() *redis.IntCmd) {
	if c.acks.N == 0 {
		return c.renews.Pipeline(), func() *redis.IntCmd { return nil }
	}
	node, err := masterOf(ctx, c.renews, key)
	if err != nil { // no master is known: whatever is kept has not been acknowledged
		unknown := redis.NewIntCmd(ctx)
		unknown.SetErr(err)
		return c.renews.Pipeline(), func() *redis.IntCmd { return unknown }
	}
	pipe := node.Pipeline()
	return pipe, func() *redis.IntCmd { return c.acks.wait(ctx, pipe, node) }
}

// judgeRenewals makes unknown what too few replicas have of a batch, and sends on its own what a cluster has redirected.
func (c *conn) judgeRenewals(ctx context.Context, acks *redis.IntCmd, cmds []*redis.Cmd, res []renewal) {
	if acks == nil {
		return
	}
	tooFew := c.acks.judge(acks)
	for i := range res {
		if r := &res[i]; r.err == nil && r.kept == 1 {
			r.err = tooFew
		}
	}
	if c.single {
		return
	}
	for i, cmd := range cmds { // in a cluster each has one key
		if addr, _ := pointsTo(cmd.Err()); addr == "" {
			continue
		}
		r := &res[i]
		var v any
		if v, r.err = c.evalAcked(ctx, &wire{UniversalClient: c.renews}, renewScript, cmd.Args()); r.err == nil {
			reply, _ := v.([]any)
			r.kept, r.err = renewed(keyOf(cmd.Args()), reply, 0)
		}
	}
}
