package lockcore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxNewcomers is how many clients of newcomers there are at a time.
const maxNewcomers = 16

// waitForReplicas makes c do so, if it can.
func (c *conn) waitForReplicas(r ReplicaAcks) error {
	if r.N == 0 {
		return nil
	}
	c.acks, c.records = r.withDefaults(), c.ends
	switch ends := c.ends.UniversalClient.(type) {
	case *redis.Client:
		if c.own { // its dialer ends with c already
			c.records = &wire{UniversalClient: ownClient(context.Background(), ends.Options(), c.dials, errCutOff)}
		}
	case *redis.ClusterClient:
		c.records = &wire{UniversalClient: ownCluster(context.Background(), ends.Options(), c.slots, c.dials, errCutOff)}
	default:
		return errors.New("lockcore: New: ReplicaAcks needs a *redis.Client, also of NewFailoverClient, or a *redis.ClusterClient: a wrapper may send WAIT elsewhere")
	}
	return nil
}

// closeAcks closes what waitForReplicas and redirections have made of our own.
func (c *conn) closeAcks() {
	if c.records != nil && c.records != c.ends {
		_ = c.records.Close() // as in close
	}
	c.newcomers.close()
}

// masterOf is the client of the master that has key.
func masterOf(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	}
	return nil, errors.New("lockcore: no master to wait for replicas on") // New refuses such clients
}

// pointsTo is where an error of a cluster points to, "" if nowhere.
func pointsTo(err error) (addr string, ask bool) {
	if err == nil {
		return "", false
	}
	addr, ok := redis.IsMovedError(err)
	if !ok {
		addr, ask = redis.IsAskError(err)
	}
	if i := strings.LastIndexByte(addr, ':'); i >= 0 { // Redis writes an IPv6 address without brackets
		addr = net.JoinHostPort(strings.Trim(addr[:i], "[]"), addr[i+1:])
	}
	return addr, ask
}

// newcomers are clients of masters that have no slot yet, to which a cluster points for the keys of their first: go-redis shows only masters
// with slots. One is kept until it has become one of those, or another needs its place, and is closed by whoever uses it last.
type newcomers struct {
	mu     sync.Mutex
	all    map[place]*newcomer
	closed bool
}

// place is a newcomer as one of our pools sees it: their time limits differ, and none stands behind another.
type place struct {
	of   *redis.ClusterClient
	addr string
}

type newcomer struct {
	client *redis.Client
	users  int
	left   bool // it is in the map no more
}

// follow finds the master that an error of a cluster points to, nil if it points nowhere. The slots are read anew. done must be called after the
// last use.
func (n *newcomers) follow(ctx context.Context, rdb redis.UniversalClient, err error) (node *redis.Client, ask bool, done func()) {
	cluster, ok := rdb.(*redis.ClusterClient)
	addr, ask := pointsTo(err)
	if !ok || addr == "" {
		return nil, false, nil
	}
	var mu sync.Mutex
	var like *redis.Client                                                               // any other
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error { // without a command
		mu.Lock()
		defer mu.Unlock()
		if like = master; master.Options().Addr == addr {
			node = master
		}
		return nil
	})
	at := place{cluster, addr}
	switch {
	case node != nil:
		n.forget(at)
		return node, ask, func() {}
	case like == nil:
		return nil, false, nil
	}
	node, done = n.use(at, like)
	return node, ask, done
}

// use returns the client of a newcomer, made like that of another master, or nil if there is no room.
func (n *newcomers) use(at place, like *redis.Client) (*redis.Client, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.all[at]
	if one == nil {
		if n.closed || !n.roomLocked() {
			return nil, nil
		}
		o := *like.Options()
		o.Addr, o.NodeAddress, o.MaxRetries = at.addr, "", -1
		o.PushNotificationProcessor, o.MaintNotificationsConfig = nil, noNotices()
		one = &newcomer{client: at.of.Options().NewClient(&o)}
		if n.all == nil {
			n.all = map[place]*newcomer{}
		}
		n.all[at] = one
	}
	one.users++
	return one.client, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		one.users--
		one.closeLocked()
	}
}

// roomLocked says whether there is room for one more, and makes it if somebody is idle.
func (n *newcomers) roomLocked() bool {
	for at, one := range n.all {
		if len(n.all) < maxNewcomers {
			break
		}
		if one.users == 0 {
			n.leaveLocked(at)
		}
	}
	return len(n.all) < maxNewcomers
}

// forget lets go of one that the cluster's own client knows by now.
func (n *newcomers) forget(at place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaveLocked(at)
}

func (n *newcomers) leaveLocked(at place) {
	if one := n.all[at]; one != nil {
		delete(n.all, at)
		one.left = true
		one.closeLocked()
	}
}

func (one *newcomer) closeLocked() {
	if one.left && one.users == 0 {
		_ = one.client.Close() // its connections may have ended already
	}
}

// close lets nobody in any more. What is under way has ended with the dialer's ctx.
func (n *newcomers) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for at := range n.all {
		n.leaveLocked(at)
	}
}
