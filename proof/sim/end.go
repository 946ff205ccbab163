package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// end checks that the system recovers when there are no more faults. Each process gets each key, no
// request is in a wait queue, every process closes in time, and all remaining data expires. The
// bubble checks that no goroutine is left.
func (w *world) end() Stats {
	time.Sleep(settled)
	for _, n := range w.nodes() {
		for i := range w.c.Keys {
			w.serve(n, exclusiveKey(i))
		}
	}
	if len(w.servers) == 1 {
		w.serveShared()
	}
	time.Sleep(80 * time.Second) // the requests of killed processes, and the subscriptions, end
	for name, k := range w.keys {
		if q := w.queue(name); len(q) > 0 {
			w.fail("I8", name, "in the queue at the end: %q", q)
		}
		for _, srv := range w.servers {
			if s := srv.look(name); s.live() {
				w.fail("I8", name, "at the end: %v", s)
			}
		}
		for _, ten := range k.holds {
			if ten.alive() {
				w.fail("I8", name, "%s still holds %d", ten.who, ten.token)
			}
		}
	}
	w.sharedLeft()
	for _, s := range w.servers {
		if c := s.Redis.PubSubChannels("*"); len(c) > 0 {
			w.fail("I8", "", "subscribed at the end: %q", c)
		}
	}
	w.expiring()
	var all sync.WaitGroup
	for _, n := range append(w.nodes(), w.dead...) {
		all.Go(n.close)
	}
	all.Wait()
	time.Sleep(2 * time.Second) // pools that could not dial notice it
	if d := w.now(); d > 0 {
		w.stats.Virtual = d
	}
	w.giveUp()
	w.report()
	return w.stats
}

// serve acquires a key that is free.
func (w *world) serve(n *node, name string) {
	k, start := w.key(name), w.now()
	t := lockcore.Terms{Lease: time.Second, Wait: 10 * time.Second}
	le, err := n.locks.Acquire(w.t.Context(), name, t)
	if err != nil {
		w.fail("I6", k.name, "process %d does not get the key at the end: %v", n.index, err)
		return
	}
	ten := w.grant(k, &waiter{n: n, who: "end", since: start, terms: testcall.Call{Terms: t}}, le)
	if took := w.now() - start; took > 4*time.Second {
		w.fail("I6", k.name, "process %d got the key at the end after %v", n.index, took)
	}
	w.release(ten)
	if err := le.Release(w.t.Context()); err != nil {
		w.fail("I6", k.name, "process %d cannot release the key at the end: %v", n.index, err)
	}
}

// report logs how often each invariant was violated. The first violation of each was reported in
// full.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for name, n := range w.broken {
		all = append(all, fmt.Sprintf("%s %d times", name, n))
	}
	slices.Sort(all)
	if len(all) > 0 {
		w.t.Logf("seed %d: violated: %s; faults %v", w.seed, strings.Join(all, ", "), w.kinds)
	}
}
