package parking

import (
	"sync/atomic"
	"time"
)

// Mean is an exponential average of the time of holds. The zero value has none.
type Mean struct {
	ns atomic.Int64 // 0 before the first hold
}

func (m *Mean) value() time.Duration { return time.Duration(m.ns.Load()) }

// add adds a hold to the mean. If two calls run at the same time, one of them may have no effect.
func (m *Mean) add(took time.Duration) {
	mean := m.ns.Load()
	if mean == 0 {
		m.ns.Store(max(int64(took), 1))
		return
	}
	m.ns.Store(max(mean+(int64(took)-mean)/8, 1))
}
