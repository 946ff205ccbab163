package lockcore

import "github.com/redis/go-redis/v9"

// Newcomers are the clients that a Locker has of masters without slots.
type Newcomers struct{ n newcomers }

// Use is one command to a newcomer.
func (n *Newcomers) Use(of *redis.ClusterClient, addr string, like *redis.Client, do func(*redis.Client)) (ok bool) {
	client, done := n.n.use(place{of, addr}, like)
	if client == nil {
		return false
	}
	defer done()
	do(client)
	return true
}

// Forget says that a newcomer has slots by now.
func (n *Newcomers) Forget(of *redis.ClusterClient, addr string) { n.n.forget(place{of, addr}) }

// Len is how many there are.
func (n *Newcomers) Len() int {
	n.n.mu.Lock()
	defer n.n.mu.Unlock()
	return len(n.n.all)
}

// Close is that of the Locker.
func (n *Newcomers) Close() { n.n.close() }

// MaxNewcomers is how many there may be at a time.
const MaxNewcomers = maxNewcomers
