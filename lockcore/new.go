package lockcore

import (
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/errtext"
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
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return newLocker(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
		acks := redis.Acks(o.ReplicaAcks.withDefaults())
		b, err := redis.New(rdb, redis.Options{Options: common, Prefix: o.Prefix, NoGroups: o.NoGroups, Acks: acks})
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}

// MemoryOptions are the options of [NewMemory]. The zero value is ready to use.
type MemoryOptions struct {
	// Terms are the defaults for the Terms of each call.
	Terms Terms
	// Observer receives the events. Default: none, but see Options.Observer.
	Observer event.Observer
	// MaxBytes bounds the keys and records. Default: 64 MiB. At least 1 KiB. Beyond the bound, until
	// keys expire:
	//
	//   - A call for a new key fails with ErrUnavailable. Leases are renewed and released as before.
	//   - A record that does not fit is tried again while the lease is valid. Then it is reported as
	//     CompletionFailed, and the key is abandoned.
	//
	// A shorter Keep and a smaller MaxResult need less memory.
	MaxBytes int64
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o MemoryOptions) Validate() error {
	var size error
	if o.MaxBytes != 0 && o.MaxBytes < memory.MinBytes {
		size = fmt.Errorf("lockcore: MemoryOptions.MaxBytes is %d, must be at least %d", o.MaxBytes, memory.MinBytes)
	}
	return errtext.Join(o.Terms.Validate(), size)
}

// NewMemory returns a Locker whose keys are in this process only. It is for development, tests and
// services that run as a single instance: neither other processes nor other Lockers see its keys.
// Everything else works as with New: waiting, fencing tokens, takeovers, records, Inspect, Revoke.
//
//   - It does not exclude other processes and other Lockers. So it does not suit two instances, not
//     even during a rolling deploy, or a cron job that runs on several pods.
//   - The keys end with the process. After a restart or a crash a once key runs again, and no key
//     is abandoned. So it does not suit payments.
//   - Keys and records take at most o.MaxBytes.
//   - Tokens start at the clock of the machine. They grow over a restart, unless the clock was set
//     back.
//
// NewMemory returns an error if o is not valid.
func NewMemory(o MemoryOptions) (*Locker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return newLocker(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
		b, err := memory.New(memory.Options{Options: common, MaxBytes: o.MaxBytes})
		if err != nil {
			return nil, err
		}
		return b, nil
	})
}
