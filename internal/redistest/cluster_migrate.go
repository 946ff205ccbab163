//go:build unix

package redistest

// Migration is a slot that moves from one primary to another, see [Shards.Begin].
type Migration struct {
	s        *Shards
	slot     int
	from, to *Server
	Moved    int // number of keys so far
}

// Migrate moves a slot with all its keys while it is in use, like redis-cli --cluster reshard. It
// returns the number of keys.
func (s *Shards) Migrate(slot int, to *Server) (keys int) {
	s.tb.Helper()
	m := s.Begin(slot, to)
	m.Keys()
	m.End()
	return m.Moved
}

// Begin opens a slot: from now on its old primary replies ASK for a key that it does not have.
func (s *Shards) Begin(slot int, to *Server) *Migration {
	s.tb.Helper()
	m := &Migration{s: s, slot: slot, from: s.Master(slot), to: to}
	if m.from == to {
		s.tb.Fatalf("slot %d is on that server already", slot)
	}
	s.must(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", s.ids[m.from.Addr()])
	s.must(m.from, "CLUSTER", "SETSLOT", slot, "MIGRATING", s.ids[to.Addr()])
	return m
}

// Keys moves the keys that the old primary has.
func (m *Migration) Keys() {
	m.s.tb.Helper()
	for {
		keys, err := m.s.must(m.from, "CLUSTER", "GETKEYSINSLOT", m.slot, 100).Slice()
		if err != nil {
			m.s.tb.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		m.s.must(m.from, append([]any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, mustTime.Milliseconds(), "KEYS"}, keys...)...)
		m.Moved += len(keys)
	}
}

// End assigns the slot to its new primary.
func (m *Migration) End() {
	m.s.tb.Helper()
	m.s.must(m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", m.s.ids[m.to.Addr()])
	m.s.must(m.from, "CLUSTER", "SETSLOT", m.slot, "NODE", m.s.ids[m.to.Addr()])
	for _, other := range m.s.Masters() {
		if other != m.to && other != m.from {
			m.s.must(other, "CLUSTER", "SETSLOT", m.slot, "NODE", m.s.ids[m.to.Addr()])
		}
	}
}
