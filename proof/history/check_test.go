package history_test

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	linger   = int64(time.Second) // how long a call that gave up may keep the key from others: its request is withdrawn asynchronously
	mostTime = 10 * time.Second   // for the history of one key in one round
	enough   = 3                  // keys with a violation: what is wrong costs time to explain
	shown    = 12                 // events around a violation
)

// checker checks histories round after round. Between two rounds nothing is under way.
type checker struct {
	keys    []state        // by key, of exclusive ones
	unknown map[int32]bool // keys for which a call got no reply: a refusal there may be right
	problem []string
}

func newChecker(keys int) *checker {
	return &checker{keys: make([]state, keys), unknown: map[int32]bool{}}
}

// round checks one round and forgets it.
func (c *checker) round(events []operation) {
	byKey := map[int32][]*operation{}
	for i := range events {
		e := &events[i]
		byKey[e.key] = append(byKey[e.key], e)
	}
	work := make(chan int32)
	var mu sync.Mutex // guards c
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for key := range work {
				mu.Lock()
				init, vague, skip := c.init(key), c.unknown[key], len(c.problem) >= enough
				mu.Unlock()
				if skip {
					continue
				}
				problem, vague := history(byKey[key]).check(init, vague)
				mu.Lock()
				c.keep(key, byKey[key], vague)
				if problem != "" {
					c.problem = append(c.problem, fmt.Sprintf("key %d: %s", key, problem))
				}
				mu.Unlock()
			}
		})
	}
	for key := range byKey {
		work <- key
	}
	close(work)
	wg.Wait()
}

// init returns the state with which the history of a key begins. A once key lives in one round
// only.
func (c *checker) init(key int32) state {
	if int(key) < len(c.keys) {
		return c.keys[key]
	}
	return state{}
}

func (c *checker) keep(key int32, events []*operation, vague bool) {
	if int(key) < len(c.keys) {
		s := &c.keys[key]
		for _, e := range events {
			if e.granted() && e.token >= s.last {
				s.last, s.share = e.token, e.shared
			}
			s.value = max(s.value, e.value) // it grows with each write
		}
	}
	if vague {
		c.unknown[key] = true
	}
}

// history is all that happened to one key in one round.
type history []*operation

// check returns what is wrong, or nothing, and whether a call got no reply.
func (h history) check(init state, vague bool) (problem string, unanswered bool) {
	slices.SortFunc(h, func(a, b *operation) int { return cmp.Compare(a.call, b.call) })
	for _, e := range h {
		vague = vague || e.answer == unknown || e.ret == never
	}
	if again := h.link(init); again != nil {
		return fmt.Sprint("a token that was out: ", again), vague
	}
	h.findLines(vague)
	ops := make([]porcupine.Operation, len(h))
	for i, e := range h {
		ops[i] = porcupine.Operation{ClientId: int(e.worker), Input: e, Call: e.call, Return: e.ret}
	}
	switch porcupine.CheckOperationsTimeout(model(init), ops, mostTime) {
	case porcupine.Ok:
		return "", vague
	case porcupine.Illegal:
		return "no order explains it:\n" + h.explain(init, ops), vague
	default:
		return fmt.Sprintf("inconclusive: %d events not checked in %v", len(h), mostTime), vague
	}
}

// link gives each grant the token before its own. It returns one whose token is not new. Shares may
// have the token of another one.
func (h history) link(init state) (again *operation) {
	last, share, before := init.last, init.share, init.last
	var grants history
	for _, e := range h {
		if e.granted() {
			grants = append(grants, e)
		}
	}
	slices.SortFunc(grants, func(a, b *operation) int { return cmp.Compare(a.token, b.token) })
	for _, e := range grants {
		switch {
		case e.token > last:
			before, last, share = last, e.token, e.shared
		case e.token < last || !share || !e.shared:
			return e
		default:
			e.joins = true
		}
		e.prev = before
	}
	return nil
}

// findLines marks the refused calls during which another call was waiting: then the key may have
// been reserved for that one. h is sorted.
func (h history) findLines(all bool) {
	type end struct {
		at int64
		of *operation
	}
	var began []int64
	var last, second []end // of the waits that had begun by then, the ends that come last
	var a, b end
	for _, e := range h {
		if e.what != acquire && e.what != claim {
			continue
		}
		x := end{e.ret, e}
		if e.answer != yes && e.answer != record {
			x.at += linger
		}
		switch {
		case x.at > a.at:
			a, b = x, a
		case x.at > b.at:
			b = x
		}
		began, last, second = append(began, e.call), append(last, a), append(second, b)
	}
	for _, e := range h {
		if e.answer != busy {
			continue
		}
		n, _ := slices.BinarySearch(began, e.ret+1)
		if n == 0 {
			e.inLine = all
			continue
		}
		x := last[n-1]
		if x.of == e {
			x = second[n-1]
		}
		e.inLine = all || x.at >= e.call
	}
}

// explain shows where the longest order that can be found ends.
func (h history) explain(init state, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model(init), ops, mostTime)
	var longest []int
	for _, part := range info.PartialLinearizations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed, s := make([]bool, len(h)), init
	for _, i := range longest {
		placed[i] = true
		s, _ = s.step(h[i])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "after %d of %d events the key is %+v\n", len(longest), len(h), s)
	for _, i := range longest[max(0, len(longest)-shown):] {
		fmt.Fprintln(&b, "      ", h[i])
	}
	left := 0
	for i, e := range h {
		if !placed[i] && left < shown {
			left++
			fmt.Fprintln(&b, "  then?", e)
		}
	}
	return b.String()
}
