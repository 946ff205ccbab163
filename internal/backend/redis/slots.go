package redis

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// slotTimeout is how long go-redis waits for one node's reply to CLUSTER SLOTS before it tries the
// next node.
const slotTimeout = callTimeout / 2

// slotMap is the latest reply to CLUSTER SLOTS that any cluster client of a Locker has received.
// go-redis gives each client its own slot map, and reads it when the client is first used. For
// renewals that can be long after the acquires. Without the shared reply, a node that has stopped
// meanwhile would delay the renewals on all others.
type slotMap struct {
	newClient func(*redis.Options) *redis.Client  // of the user's client
	known     atomic.Pointer[[]redis.ClusterSlot] // the slice never changes
}

// share changes o so that its client takes the first slot map from m, if m has one. Later slot maps
// come from the cluster: go-redis requests one when a server redirects it or does not reply.
func (m *slotMap) share(o *redis.ClusterOptions) {
	hook := slotHook{m, new(atomic.Bool)}
	o.NewClient = func(node *redis.Options) *redis.Client {
		c := m.newClient(node)
		c.AddHook(hook)
		c.AddHook(resendHook{c.Options().MaxRetries > 0})
		return c
	}
}

// slotHook replies to the first CLUSTER SLOTS of one client from m, if m has a reply, and bounds
// all others.
type slotHook struct {
	m       *slotMap
	started *atomic.Bool // the client has sent CLUSTER SLOTS before
}

func (slotHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slotHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h slotHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		slots, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		if known := h.m.known.Load(); !h.started.Swap(true) && known != nil { //planted:shared-slots
			slots.SetVal(*known)
			return nil
		}
		ctx, cancel := timed(ctx, slotTimeout)
		defer cancel()
		err := next(ctx, cmd)
		if err == nil {
			reply := slots.Val()
			h.m.known.Store(&reply)
		}
		return err
	}
}
