package lockcore

import (
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
)

// New returns a Locker on rdb: a *redis.Client, a *redis.ClusterClient or any other
// redis.UniversalClient. It sends no command. Make one Locker per process.
//
// New returns an error if
//
//   - o is not valid, see [Options.Validate].
//   - rdb is nil or a *redis.Ring.
//   - rdb is a *redis.ClusterClient with ClusterOptions.ClusterSlots. redis.NewFailoverClusterClient
//     makes such a client: use redis.NewFailoverClient instead.
//   - rdb is a wrapper and o.ReplicaAcks is set.
//
// From a *redis.Client or *redis.ClusterClient the Locker makes its own clients with the options of
// rdb. So your commands that block the pool of rdb never delay a renewal. The clients of the Locker
// have three pools (four with ReplicaAcks) of up to max(PoolSize, 16) connections, in a Cluster for
// each node. They also have one subscription. Connections are opened as needed. [Locker.Close]
// closes the clients of the Locker, never rdb. MaxActiveConns, MinIdleConns, MaxIdleConns and
// PipelinePoolSize of rdb do not apply to them.
//
// The clients of the Locker have no Limiter and none of the hooks of rdb (AddHook, OnNewNode). So a
// tracing hook does not see their commands. A DialHook does not dial for them: if yours dials
// another server than Addr, the Locker uses another server than your program. Set Options.Dialer
// instead. go-redis does not show whether a client has hooks, so New cannot report them.
//
// The exceptions are a failover client (Sentinel), which is a *redis.Client too, and a wrapper. The
// Locker uses such a client as it is: do not share it with other code.
func New(rdb goredis.UniversalClient, o Options) (*Locker, error) {
	if o.MaxBytes != 0 {
		return nil, fmt.Errorf("lockcore: New: Options.MaxBytes is %d, must be 0: only NewMemory has that bound", o.MaxBytes)
	}
	return newLocker(o, func(common backend.Options) (backend.Backend, error) {
		acks := redis.Acks(o.ReplicaAcks.withDefaults())
		b, err := redis.New(rdb, redis.Options{Options: common, Prefix: o.Prefix, NoGroups: o.NoGroups, Acks: acks})
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// NewMemory returns a Locker whose keys are in this process only. It is for development, tests and
// services that run as a single instance: neither other processes nor other Lockers see its keys.
// Everything else works as with New: waiting, fencing tokens, takeovers, records, Inspect, Revoke.
//
//   - The keys end with the process. So a once key runs again after a restart, and a crash leaves
//     no abandoned key.
//   - Tokens start at the clock of the machine, so they grow over a restart unless the clock was
//     set back.
//   - Keys and records take at most Options.MaxBytes.
//
// NewMemory returns an error if o is not valid, or if o.ReplicaAcks is set: memory has no replicas.
// Prefix and NoGroups have no effect.
func NewMemory(o Options) (*Locker, error) {
	if o.ReplicaAcks.N != 0 {
		return nil, fmt.Errorf("lockcore: NewMemory: ReplicaAcks.N is %d, must be 0: memory has no replicas", o.ReplicaAcks.N)
	}
	return newLocker(o, func(common backend.Options) (backend.Backend, error) {
		b, err := memory.New(memory.Options{Options: common, MaxBytes: o.MaxBytes})
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}
