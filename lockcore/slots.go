package lockcore

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// slotTimeout bounds how long one node of a cluster has to answer CLUSTER SLOTS before go-redis asks the next one.
const slotTimeout = callTimeout / 2

// slotMap is the last answer to CLUSTER SLOTS that any of a Locker's clients of a cluster has got. go-redis gives each client a slot map of
// its own, which it reads when the client is first used. For renewals that can be long after the acquires: without the shared answer, a node
// that has stopped in between would hold up the renewals on all others.
type slotMap struct {
	newClient func(*redis.Options) *redis.Client  // of the user's client
	known     atomic.Pointer[[]redis.ClusterSlot] // what it points to never changes
}

// share makes the client that is to be made with o take its first slot map from m, if m has one. Later ones, which go-redis asks for when a
// server redirects it or does not answer, come from the cluster.
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
		ctx, cancel := context.WithTimeout(ctx, slotTimeout)
		defer cancel()
		err := next(ctx, cmd)
		if err == nil {
			answer := slots.Val()
			h.m.known.Store(&answer)
		}
		return err
	}
}

// routed groups leases by the master that has their slot. It never waits for a cluster: the acquires of the leases have left a slot map
// behind. Leases of which it does not know the master form one group, of which go-redis finds the masters when it is renewed.
func routed(ctx context.Context, cluster *redis.ClusterClient, all []*grant) map[string][]*grant {
	ctx, cancel := context.WithTimeout(ctx, minPassTime)
	defer cancel()
	byNode := map[string][]*grant{}
	for _, g := range all {
		node := ""
		if ctx.Err() == nil {
			if n, err := cluster.MasterForKey(ctx, g.line.keys[0]); err == nil {
				node = n.Options().Addr
			}
		}
		byNode[node] = append(byNode[node], g)
	}
	return byNode
}
