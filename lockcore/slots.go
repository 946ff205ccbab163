package lockcore

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// slotTimeout is how long go-redis waits for one node's reply to CLUSTER SLOTS before it asks the next node.
const slotTimeout = callTimeout / 2

// slotMap is the latest reply to CLUSTER SLOTS that any of a Locker's cluster clients has got. go-redis gives each
// client its own slot map, and reads it when the client is first used. For renewals that can be long after the
// acquires. Without the shared reply, a node that has stopped meanwhile would delay the renewals on all others.
type slotMap struct {
	newClient func(*redis.Options) *redis.Client  // of the user's client
	known     atomic.Pointer[[]redis.ClusterSlot] // the slice never changes
}

// share changes o so that its client takes the first slot map from m, if m has one. Later slot maps come from the
// cluster: go-redis asks for one when a server redirects it or does not answer.
func (m *slotMap) share(o *redis.ClusterOptions) {
	hook := slotHook{m, new(atomic.Bool)}
	o.NewClient = func(node *redis.Options) *redis.Client {
		c := m.newClient(node)
		c.AddHook(hook)
		return c
	}
}

// slotHook answers or bounds CLUSTER SLOTS on the nodes of one client.
type slotHook struct {
	m       *slotMap
	started *atomic.Bool // the client has asked before
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
			answer := slots.Val()
			h.m.known.Store(&answer)
		}
		return err
	}
}

// routed groups leases by the master that has their slot. It never waits for a cluster, because the acquires of the
// leases have left a slot map. Leases whose master it does not know form one group; go-redis finds their masters when
// it renews them.
func routed(ctx context.Context, cluster *redis.ClusterClient, all []*grant) map[string][]*grant {
	ctx, cancel := context.WithTimeout(ctx, minPassTime)
	defer cancel()
	byNode := map[string][]*grant{}
	for _, g := range all {
		node := ""
		if ctx.Err() == nil {
			if n, err := cluster.MasterForKey(ctx, g.queue.keys[0]); err == nil {
				node = n.Options().Addr
			}
		}
		byNode[node] = append(byNode[node], g)
	}
	return byNode
}
