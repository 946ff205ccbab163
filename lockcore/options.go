package lockcore

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const maxPrefixLen = 64

// Options of [New]. The zero value is ready to use.
type Options struct {
	// Prefix begins the name of every key in Redis. Default "holdfast". At most 64 printable ASCII
	// characters without spaces and braces. Lockers exclude each other only under the same prefix.
	Prefix string
	// Terms are the defaults for the Terms of each call.
	Terms Terms
	// Observer receives the events. Default: none, and the Locker logs losses, takeovers, overruns
	// and Misconfigured as warnings on slog.Default(), each kind at most once a second, and
	// ServerFailed for each server. An Observer turns that off, unless it only traces. event.Discard
	// turns it off too.
	Observer event.Observer
	// NoGroups sends every call alone, on its own connection. Default: while many calls for a
	// server are under way, they are sent in groups.
	//
	//   - At most four concurrent calls for a server are sent alone, on a slow network at most
	//     eight.
	//   - With more, a call waits while others are under way, at most about 1 ms. Then all calls
	//     that wait are sent as one group of up to 64.
	//   - A group for a single server is one script where that is possible. In a Cluster it is one
	//     pipeline for each server.
	//   - A call whose ctx ends does not wait for its group.
	//   - A Locker with ReplicaAcks, a failover client or a wrapper sends no groups.
	//
	// GroupSent reports the groups.
	NoGroups bool
	// ReplicaAcks makes a call wait until N replicas have the grant. Default: the primary suffices.
	// New returns an error if it is set for a wrapper, which may be a cluster.
	ReplicaAcks ReplicaAcks
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o Options) Validate() error {
	return errtext.Join(checkPrefix(o.Prefix), o.Terms.Validate(), o.ReplicaAcks.validate())
}

func checkPrefix(p string) error {
	if len(p) > maxPrefixLen || strings.ContainsFunc(p, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '{' || r == '}'
	}) {
		return fmt.Errorf("lockcore: Options.Prefix is %q, must be at most %d printable ASCII characters without space and braces", p, maxPrefixLen)
	}
	return nil
}
