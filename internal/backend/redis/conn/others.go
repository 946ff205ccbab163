package conn

import (
	"iter"

	"github.com/redis/go-redis/v9"
)

// maxBorrowed is the maximum number of sends that use a client of other commands.
const maxBorrowed = PoolSize / 2

// Others yields the clients for a command that on has got no connection for. A server at maxclients
// refuses new connections, for example, but serves open ones. calls has an open connection if a
// lease is held.
//
// An acquire stays on calls. It may wait and be sent again, but without a renewal the lease ends, and
// without a release the key stays held. So acquires must not take connections from these.
//
// A renewal or a release that competes for a connection with the commands of its client gets it if
// it comes first. If it does not, the watchdog or the cleanup queue sends it again. At most
// maxBorrowed such sends are in flight, so each client keeps at least half of its pool for its own
// commands.
func (c *Conn) Others(on redis.UniversalClient) iter.Seq[redis.UniversalClient] {
	return func(yield func(redis.UniversalClient) bool) {
		if !c.Own || on == c.Calls {
			return
		}
		defer c.borrowed.Add(-1)
		if c.borrowed.Add(1) > maxBorrowed {
			return
		}
		for _, other := range []redis.UniversalClient{c.Calls, c.Ends, c.Renews} {
			if other != on && !yield(other) {
				return
			}
		}
	}
}
