package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// probe tries every command that the scripts use, as a script. ACL DRYRUN needs more rights,
// is missing before Redis 7, and does not see how a script runs. probe omits a command that would
// leave a key without a TTL. KEYS[1]=hash KEYS[2]=queue ARGV[1]=channel. Returns "command: error"
// for each that is refused.
const probe = `-- check.lua
local refused = {}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return true end
  refused[#refused + 1] = select(1, ...) .. ': ' .. reply.err
end
local expires = try('PEXPIRE', KEYS[1], 60000)
local deletes = try('DEL', KEYS[1], KEYS[2])
try('TIME')
try('PTTL', KEYS[1])
if deletes then -- the key is absent, so that SET stores nothing
  try('SET', KEYS[1], 'x', 'XX', 'PX', 60000)
  try('GET', KEYS[1])
end
if expires or deletes then
  if try('HSET', KEYS[1], 'f', 1) and expires then redis.call('PEXPIRE', KEYS[1], 60000) end
  if try('ZADD', KEYS[2], 1, 'm') and expires then redis.call('PEXPIRE', KEYS[2], 60000) end
end
try('HGET', KEYS[1], 'f')
try('HMGET', KEYS[1], 'f', 's')
try('HDEL', KEYS[1], 's')
try('ZCARD', KEYS[2])
try('ZRANGE', KEYS[2], 0, -1)
try('ZRANK', KEYS[2], 'm')
try('ZSCORE', KEYS[2], 'm')
try('ZREM', KEYS[2], 'n')
if deletes then redis.call('DEL', KEYS[1], KEYS[2]) end
try('PUBLISH', ARGV[1], 'check')
return refused`

const (
	trialKeep     = time.Minute                                // of the keys of a trial that ended early
	unknownScript = "0000000000000000000000000000000000000000" // digest of no script
)

var kinds = []backend.Kind{backend.KindExclusive, backend.KindOnce}

const deleteBoth = `-- check.lua
return redis.call('DEL', KEYS[1], KEYS[2])`

// tryOut uses throw-away keys as a Locker does.
func (n *node) tryOut(ctx context.Context) {
	if n.key == "" || n.found(codeReplica) {
		return
	}
	var refused []string
	var failed error
	for _, kind := range kinds {
		denied, err := n.tryKind(ctx, kind)
		refused = append(refused, denied...)
		failed = cmp.Or(failed, err)
	}
	if n.acks > 0 {
		if _, err := n.ask(ctx, "WAIT", 0, 0); denied(err) {
			refused = append(refused, waitRefused+err.Error())
		}
	}
	if len(refused) > 0 {
		n.refused(refused)
		return
	}
	if failed == nil {
		failed = n.trial(ctx)
	}
	if errors.Is(failed, lockcore.ErrReplicaAcks) {
		if !n.found(codeReplicaAcks) { // INFO may be refused, or the replicas slow
			n.lacksReplicas(strings.TrimPrefix(failed.Error(), "lockcore: "), " If they are connected and slow: a longer ReplicaAcks.Timeout.")
		}
		return
	}
	if failed != nil && !n.found(codeMemory, codeDisk, codeMinReplicas, codeReplicaAcks, codeClusterState, codeClusterClient) {
		n.say(codeTrial, SeverityProblem, "a throw-away key could not be acquired and released: "+strings.TrimSpace(failed.Error()),
			"No task that holdfast guards can run.", "The message comes from Redis, or from a proxy in front of it.")
	}
}

const (
	waitRefused = "WAIT: "
	rightsPage  = "https://github.com/holdfast-go/holdfast/blob/main/docs/operate.md#rights"
)

// refused reports commands that the user may not use.
func (n *node) refused(what []string) {
	slices.Sort(what)
	what = slices.Compact(what)
	remedy := fmt.Sprintf("Give the user the rights that %s lists, for the keys %s* and the channels %s*.", rightsPage, n.b.Keys(), n.b.Channels())
	if slices.ContainsFunc(what, func(s string) bool { return strings.HasPrefix(s, waitRefused) }) {
		remedy += " Options.ReplicaAcks also needs +wait."
	}
	n.say(codeRights, SeverityProblem, "refused: "+strings.Join(what, "; "),
		"A script fails at a command that the user may not use, in the worst case half-way. Nothing works reliably.", remedy)
}

// tryKind returns the commands that are refused for a kind of key. The error is the reason why the
// trial failed.
func (n *node) tryKind(ctx context.Context, kind backend.Kind) (refused []string, err error) {
	keys := n.b.Key(kind, n.key).Stored
	_, err = n.ask(ctx, "EVALSHA", unknownScript, 2, keys[0], keys[1], "0")
	if denied(err) {
		refused = append(refused, "EVALSHA: "+err.Error())
	} else if err != nil && !goredis.HasErrorPrefix(err, "NOSCRIPT") {
		return nil, err
	}
	v, err := n.ask(ctx, "EVAL", probe, 2, keys[0], keys[1], n.b.Channels()+n.key)
	if denied(err) {
		return append(refused, "EVAL: "+err.Error()), nil
	} else if err != nil {
		return refused, err
	}
	list, _ := v.([]any)
	for _, line := range list {
		text := strings.TrimSpace(fmt.Sprint(line))
		if denied(errors.New(text)) {
			refused = append(refused, text)
		} else {
			err = errors.New(text)
		}
	}
	return refused, err
}

// refusals are the errors of an ACL. The first is for a client, the second for a script in Redis 6
// and 7.0, the third for a script in Redis 8 and Valkey.
var refusals = []string{"NOPERM", "The user executing the script can't", "ACL failure in script"}

func denied(err error) bool {
	return err != nil && slices.ContainsFunc(refusals, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// trial acquires and releases a key of each kind.
func (n *node) trial(ctx context.Context) error {
	n.tried = true
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	terms := lockcore.Terms{Wait: lockcore.NoWait}
	le, err := n.l.Acquire(ctx, n.key, terms)
	if err == nil {
		err = le.Release(ctx)
	}
	if err == nil {
		if le, _, err = n.l.Claim(ctx, n.key, lockcore.Claim{Terms: terms, Keep: trialKeep}); err == nil && le != nil {
			err = le.Release(ctx)
		}
	}
	return err
}

// sweep deletes the keys of the trials. It first closes the Locker, because its background work
// could write the keys again.
func (e *examination) sweep(ctx context.Context, nodes []*node) {
	e.closeLocker(ctx)
	var wg sync.WaitGroup
	for _, n := range nodes {
		if !n.tried {
			continue
		}
		wg.Go(func() {
			for _, kind := range kinds {
				keys := e.b.Key(kind, n.key).Stored
				_, _ = n.ask(ctx, "EVAL", deleteBoth, 2, keys[0], keys[1]) // without a reply their TTL ends them
			}
		})
	}
	wg.Wait()
}

// checkChannel sends a message as a release does, and receives it as a waiter does.
func (e *examination) checkChannel(ctx context.Context, nodes []*node) []Finding {
	i := slices.IndexFunc(nodes, func(n *node) bool {
		return n.key != "" && n.err == nil && !n.found(codeReplica, codeBusy, codeSentinel, codeRights)
	})
	if i < 0 {
		return nil // the servers have worse findings
	}
	err := e.message(ctx, nodes[i])
	if err == nil {
		return nil
	}
	seen, remedy := "no message arrives: "+strings.TrimSpace(err.Error()), "Check for a proxy in front of Redis, and client-output-buffer-limit pubsub."
	if denied(err) {
		seen, remedy = "SUBSCRIBE is refused: "+strings.TrimSpace(err.Error()), fmt.Sprintf("Give the user +subscribe, +unsubscribe, +ping and the channels &%s*.", e.b.Channels())
	}
	return []Finding{{
		codeChannel, SeverityWarning, "", seen,
		"Waiters receive no messages: they send their requests again after up to 2 s, and may be overtaken. Revoke cancels a holder only at its next renewal.", remedy,
	}}
}

func (e *examination) message(ctx context.Context, n *node) error {
	client, closeIt := e.b.Subscriber(ctx)
	defer func() { _ = closeIt() }()
	channel := e.b.Channels() + rand.Text()
	sub := client.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	wait := time.Now().Add(2 * callTimeout)
	for sent := false; ; {
		m, err := sub.ReceiveTimeout(ctx, time.Until(wait))
		if err != nil {
			return err
		}
		switch m.(type) {
		case *goredis.Message:
			return nil
		case *goredis.Subscription:
			if sent {
				continue
			}
			keys := e.b.Key(backend.KindExclusive, n.key).Stored
			if _, err := n.ask(ctx, "EVAL", probe, 2, keys[0], keys[1], channel); err != nil {
				return err
			}
			sent = true
		}
	}
}
