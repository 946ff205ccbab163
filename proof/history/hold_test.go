package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// hold is the work of a worker while it has a key.
type hold struct {
	*worker
	key    int32
	id     int32
	leases []*lockcore.Lease // the first, and those of nested runs
	alive  int64             // when it was last seen not to be lost
}

func (n *hold) ctx() context.Context { return n.leases[0].Context() }

// hold writes to the register, perhaps enters again, extends or stays, and leaves in any order.
func (n *hold) hold(slow bool) {
	for chance(3) && len(n.leases) < 4 {
		n.enter()
	}
	r := &n.registers[n.key]
	value := r.Value()
	yield()
	if chance(20) {
		n.extend()
	}
	switch {
	case slow:
		n.stay(lease/2+rand.N(lease/2), n.over)
	case chance(50):
		n.stay(rand.N(2*time.Millisecond), nil)
	}
	yield()
	if !r.Write(n.leases[0].Token(), n.id, value+1) && !errors.Is(context.Cause(n.ctx()), lockcore.ErrLost) {
		n.stale.Add(1)
	}
	n.look()
	for len(n.leases) > 0 {
		i := rand.IntN(len(n.leases))
		le := n.leases[i]
		n.leases = append(n.leases[:i], n.leases[i+1:]...)
		n.take()
		e := n.begin(leave, n.key, n.id)
		a := left(le.Release(context.WithValue(context.Background(), workerKey{}, n.worker)))
		if a == lost {
			n.lost()
		}
		n.end(e, a)
	}
}

// stay returns after d, at the end of the hold, or at the end of the round, which over reports. It
// ignores over if the watchdog has not yet renewed slowKeys leases.
func (n *hold) stay(d time.Duration, over <-chan struct{}) {
	if n.renewals.Load() < slowKeys {
		over = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	case <-n.ctx().Done():
	}
}

// enter makes a nested call. It fails only where the hold has ended early.
func (n *hold) enter() {
	n.take()
	e := n.begin(enter, n.key, n.id)
	innermost := n.leases[len(n.leases)-1].Context() // with an outer one it would be a sibling, and wait
	le, err := n.locks.Acquire(innermost, n.names[n.key], lockcore.Terms{Wait: lockcore.NoWait})
	if err != nil {
		if n.ctx().Err() == nil {
			n.Errorf("a nested call: %v", err)
		}
		return
	}
	e.token = le.Token()
	n.leases = append(n.leases, le)
	n.end(e, yes)
}

func (n *hold) extend() {
	n.take()
	e := n.begin(extend, n.key, n.id)
	switch err := n.leases[0].Extend(n.ctx(), 2*lease); {
	case err == nil:
		n.end(e, yes)
	case errors.Is(err, lockcore.ErrRevoked):
		n.end(e, revoked)
	} // else it is lost, or Redis did not answer: no visible effect
}

// look notes that the hold is not lost yet.
func (n *hold) look() {
	at := n.now()
	if n.ctx().Err() == nil {
		n.alive = at
	}
}

// lost notes, once, that the hold was: between the last look and now.
func (n *hold) lost() {
	if n.alive == never {
		return
	}
	e := n.begin(lose, n.key, n.id)
	e.call, n.alive = n.alive, never
	n.end(e, yes)
}
