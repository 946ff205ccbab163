package fence

import "sync"

// Memory is a fence in the memory of one process. It is for tests, and for a resource that only
// this process writes, such as a cache or a file. The zero value is ready to use. A Memory must not
// be copied. It remembers the newest hold of each key as long as it exists.
type Memory struct {
	mu   sync.Mutex
	seen map[string]Hold
}

// Do calls write and returns its error. If m has seen a newer hold of h.Key, Do returns a
// *StaleError and does not call write. It runs one write at a time: a newer hold waits until write
// has returned.
func (m *Memory) Do(h Hold, write func() error) error {
	if err := h.check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.seen[h.Key]; ok && !h.after(last.Token, last.ID) {
		return h.stale(last.Token)
	}
	if m.seen == nil {
		m.seen = map[string]Hold{}
	}
	m.seen[h.Key] = h
	return write()
}

// Advance is [Memory.Do] without a write. From then on older holds are stale.
func (m *Memory) Advance(h Hold) error { return m.Do(h, func() error { return nil }) }
