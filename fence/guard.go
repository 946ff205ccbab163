package fence

import "sync"

// Guard is a fence in memory, for tests and for what lives in one process: a file that it alone writes, a cache. The zero value is ready; it
// must not be copied. It remembers the newest hold of each key of a lock for as long as it lives.
type Guard struct {
	mu   sync.Mutex
	seen map[string]Hold
}

// Do calls write if no newer hold of h.Key was seen, and returns what it returns; else it returns a *StaleError. One write at a time: no newer
// hold is let in before write has returned.
func (g *Guard) Do(h Hold, write func() error) error {
	if err := h.check(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, ok := g.seen[h.Key]; ok && !h.after(last.Token, last.ID) {
		return h.stale(last.Token)
	}
	if g.seen == nil {
		g.seen = map[string]Hold{}
	}
	g.seen[h.Key] = h
	return write()
}

// Advance is Do without a write: from now on older holds are refused.
func (g *Guard) Advance(h Hold) error { return g.Do(h, func() error { return nil }) }
