package sim

import (
	"context"
	"time"
)

// A process cannot be killed in a bubble. So a killed process loses its network in both directions,
// and gets no new calls. Its calls end some time later, and another process takes its slot at once.
// Its holds are judged until their ctxs are canceled.

// doom is a hold whose process was killed.
type doom struct {
	hold string
	by   time.Duration // when the lease must have ended on the server
}

// kill kills a process in the middle of a batch if one occurs soon, otherwise at any point. calm
// says whether the new process has no faults from the start.
func (w *world) kill(ctx context.Context, r rng, calm bool) {
	slot := &w.slots[r.IntN(len(w.slots))]
	n := slot.Load()
	n.doomed.Store(true)
	select {
	case <-n.died:
	case <-time.After(r.between(100*time.Millisecond, 3*time.Second)):
	case <-ctx.Done():
	}
	switch {
	case !n.doomed.CompareAndSwap(true, false): // mayDie was faster
		<-n.died
	case ctx.Err() != nil:
		return
	default:
		n.die(r.chance(60))
	}
	since := time.Duration(0)
	if calm {
		since = w.now()
	}
	slot.Store(w.newNode(n.index, since))
	w.dead = append(w.dead, n)
	if r.chance(50) {
		n.bury()
	} else {
		time.AfterFunc(r.between(0, 8*time.Second), n.bury)
	}
}

// mayDie is called with each hold that was handed off. It kills a doomed process.
func (n *node) mayDie() {
	if n.doomed.CompareAndSwap(true, false) {
		n.die(n.w.now()%2 == 0)
		close(n.died)
	}
}

// die disconnects n, like a machine that fails. With cut it also closes the connections, as the
// system does for a process that dies.
func (n *node) die(cut bool) {
	n.killed.Store(true)
	n.calm.Store(0)
	for _, l := range n.links {
		l.bad.Store(0)
		l.silent.Store(true)
		l.faults.Silence()
		if cut {
			l.faults.Cut()
		}
	}
	o := n.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Kills++
	for _, k := range o.keys {
		for _, ten := range k.holds {
			if ten.n == n && !ten.over {
				k.dooms = append(k.dooms, doom{hold: o.look(k.name, ten).hold, by: o.now() + ten.longest})
				o.noteLocked(k, "KILLED: process %d with %d", n.index, ten.token)
			}
		}
	}
}

// heal ends the faults of l, unless the process was killed.
func (l *link) heal() {
	if !l.killed.Load() {
		l.silent.Store(false)
		l.faults.Heal()
	}
}

// doomedLocked checks a part of I6: a killed process has a key for no longer than a lease.
// takenLocked checks that others take it then.
func (w *world) doomedLocked(k *keyState, s seen) {
	for _, d := range k.dooms {
		if w.now() > d.by+glance && s.state == "h" && s.left > 0 && d.hold != "" && s.hold == d.hold {
			w.failLocked("I6", k, "a killed process still has the key: %v", s)
		}
	}
	if n := len(k.dooms); n > 0 && w.now() > k.dooms[n-1].by+time.Minute {
		k.dooms = nil
	}
}
