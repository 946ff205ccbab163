package quorum

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"
)

// Result is the result of a search.
type Result struct {
	States int
	Grants [2]int // transitions that begin the first hold of a grant, by process
	Raised int    // of them, those after a second round
	Broken string // the property that does not hold
	Trace  []string
}

// Search visits each state that the bounds permit, and first those with fewer steps. It stops at the
// first one that breaks a property.
func (m *Model) Search() (r Result) {
	nodes, parents := []state{{now: 1}}, []int32{0}
	table, seed := make([]int32, 1<<20), maphash.MakeSeed() // indexes of nodes by hash, from 1
	find := func(t *state) *int32 {
		for h := maphash.Bytes(seed, raw(t)); ; h++ {
			if k := &table[h%uint64(len(table))]; *k == 0 || nodes[*k-1] == *t {
				return k
			}
		}
	}
	*find(&nodes[0]) = 1
	for at := 0; at < len(nodes) && r.Broken == ""; at++ {
		s := nodes[at]
		m.steps(&s, func(_ step, t *state) {
			for p := range t.procs {
				if from := s.procs[p].phase; t.procs[p].phase == holding && (from == asking || from == raising) {
					r.Grants[p]++
					r.Raised += int(from - asking)
				}
			}
			m.rename(t)
			if k := find(t); *k == 0 && r.Broken == "" {
				nodes, parents = append(nodes, *t), append(parents, int32(at))
				*k = int32(len(nodes))
				r.Broken = m.broken(t)
			}
			if 2*len(nodes) > len(table) {
				table = make([]int32, 2*len(table))
				for i := range nodes {
					*find(&nodes[i]) = int32(i + 1)
				}
			}
		})
	}
	if r.States = len(nodes); r.Broken != "" {
		r.Trace = m.trace(nodes, parents)
	}
	return r
}

// raw returns the bytes of a value whose fields are all of type uint8.
func raw[T state | site](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// rename sorts the servers whose clocks agree. So states that differ only in their names become equal.
func (m *Model) rename(t *state) {
	for _, i := range []int{1, 2, 1} {
		a, b := &t.sites[i-1], &t.sites[i]
		if m.Ahead[i] == m.Ahead[i-1] && (!m.Down || i < nServers-1) && bytes.Compare(raw(a), raw(b)) > 0 {
			*a, *b = *b, *a
		}
	}
}

// trace returns the steps to the last node, with the names that the servers had at first.
func (m *Model) trace(nodes []state, parents []int32) (lines []string) {
	var path []state
	for at := len(nodes) - 1; at > 0; at = int(parents[at]) {
		path = append(path, nodes[at])
	}
	s := nodes[0]
	for _, want := range slices.Backward(path) {
		var after state
		m.steps(&s, func(d step, t *state) {
			if renamed := *t; after.now == 0 {
				if m.rename(&renamed); renamed == want {
					after, lines = *t, append(lines, d.line(t))
				}
			}
		})
		s = after
	}
	return lines
}

// line describes a step and the state after it.
func (d step) line(t *state) string {
	name := func(n int) string { return fmt.Sprintf("%c%d", 'P'+n/nRequests, n%nRequests+1) }
	var text string
	has := t.sites[d.i].data
	switch q := t.procs[d.i%2]; d.by {
	case "time":
		return fmt.Sprintf("time %d", t.now)
	case "process":
		if text = fmt.Sprintf("  %s %s", name(d.n), d.what); q.phase == holding {
			text += fmt.Sprintf(": it holds until %d with token %d", q.until, q.token)
		}
		return text
	case "request":
		text = " of " + name(d.n)
	}
	if text = fmt.Sprintf("  server %c %s%s", 'A'+d.i, d.what, text); has.owner > 0 {
		text += fmt.Sprintf(": %s has it until %d with token %d", name(int(has.owner)-1), has.end, has.token)
	}
	return text
}
