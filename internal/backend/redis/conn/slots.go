package conn

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// slotTimeout is how long go-redis waits for the reply of a node to CLUSTER SLOTS before it tries
// the next node.
const slotTimeout = callTimeout / 2

// slotMap is the latest reply to CLUSTER SLOTS that any cluster client of a Locker has received.
// go-redis gives each client its own slot map, and requests it when the client is first used. The
// first renewal may come long after the acquires. If the client then requested its slot map from a
// node that has stopped meanwhile, that would delay the renewals on all other nodes. The shared
// reply avoids that.
type slotMap struct {
	newClient func(*redis.Options) *redis.Client  // of the user's client
	known     atomic.Pointer[[]redis.ClusterSlot] // the slice never changes
}

// share changes o so that its client takes its first slot map from m, if m has one. The client
// requests later slot maps from the cluster, because go-redis does that when a server redirects it
// or does not reply.
func (m *slotMap) share(o *redis.ClusterOptions) {
	hook := slotHook{m, new(atomic.Bool)}
	o.NewClient = func(node *redis.Options) *redis.Client {
		c := m.newClient(node)
		c.Options().Limiter = nil // as in ownClient; c has sent no command yet
		c.AddHook(hook)
		c.AddHook(resendHook{c.Options().MaxRetries > 0})
		return c
	}
}

// slotHook answers the first CLUSTER SLOTS of one client from m, if m has a reply. It bounds the
// time of all others.
type slotHook struct {
	m       *slotMap
	started *atomic.Bool // the client has requested CLUSTER SLOTS before
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
