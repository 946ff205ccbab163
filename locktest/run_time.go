package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// waits checks the three ways to bound a wait, and that none of them leaves a waiter behind.
func (t *trial) waits() {
	a, b, key := t.locker(), t.locker(), t.key("waits")
	held := t.acquire(a, key, atOnce)
	if busy := t.busy(b, key); busy.Holder.PID == 0 || busy.Remaining <= 0 || busy.Remaining > longLease {
		t.Errorf("the busy error has no holder or a wrong remaining time: %+v", busy)
	}
	const patience = 300 * time.Millisecond
	begin := time.Now()
	if _, err := b.Acquire(t.ctx, key, lockcore.Terms{Wait: patience}); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("after a wait of %v: %v, want busy", patience, err)
	}
	if took := time.Since(begin); took < patience {
		t.Errorf("waited for %v, want %v", took, patience)
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	_, err := b.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever})
	if !errors.Is(err, lockcore.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the deadline of ctx: %v, want busy and the error of ctx", err)
	}
	t.release(held)
	t.release(t.acquire(b, key, lockcore.Terms{Wait: shortLease}))
}

// keeps holds many keys, on as many slots, for longer than their leases.
func (t *trial) keeps() {
	keys, during := 100, 3*shortLease
	if t.short {
		keys, during = 30, shortLease*3/2
	}
	locks, other := t.locker(), t.locker()
	held := make([]*lockcore.Lease, keys)
	for i := range held {
		held[i] = t.acquire(locks, t.key(fmt.Sprint("kept-", i)), lockcore.Terms{Lease: shortLease})
	}
	select {
	case <-time.After(during):
	case <-t.ctx.Done():
	}
	for _, le := range held {
		t.busy(other, le.Key())
		if err := le.Release(t.ctx); err != nil {
			t.Errorf("the process is running, and has lost up to %d leases: %v", keys, err)
			return
		}
	}
}

// deadHolder cuts a holder off the network, or uses one that does not renew.
func (t *trial) deadHolder() {
	next, key := t.locker(), t.key("dead")
	locks, faults := t.network()
	call := testcall.Call{Terms: lockcore.Terms{Lease: shortLease}}
	if faults == nil {
		t.Log("the holder is one that does not renew: the client cannot be copied")
		locks, call.Fixed = t.locker(), true
	}
	held := t.call(locks, key, call)
	p := t.wait(next, key, lockcore.Terms{Wait: 3 * shortLease, Lease: longLease}, held)
	if !t.inLine(next, key) {
		t.Error("the waiter does not enter the wait queue in Redis")
	}
	if faults != nil {
		faults.Silence()
		defer faults.Heal() // otherwise Close would wait
	}
	le := p.lease(t)
	if err := t.over(held.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("the ctx ended with %v, want lost", err)
	}
	if !le.Abandoned() {
		t.Error("the next holder does not report that the key was abandoned")
	}
}

// ranOut lets another call acquire the key of a lease that was not renewed, as soon as Redis grants
// it. It polls, because a waiter would send its request only when the lease should be over.
func (t *trial) ranOut() {
	a, b, key := t.locker(), t.locker(), t.key("late")
	held := t.call(a, key, testcall.Call{Fixed: true, Terms: lockcore.Terms{Lease: shortLease}})
	var le *lockcore.Lease
	if !t.until(3*shortLease, func() bool {
		var err error
		le, err = b.Acquire(t.ctx, key, atOnce)
		return err == nil
	}) {
		t.Fatalf("the key of a lease of %v is not free after %v", shortLease, 3*shortLease)
	}
	if t.lease(le); held.Context().Err() == nil {
		t.Error("another call has the key, and the ctx of its holder has not ended")
	}
	if err := held.Extend(t.ctx, shortLease); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("extended too late: %v, want lost", err)
	}
	if err := held.Release(t.ctx); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("released too late: %v, want lost", err)
	}
	t.busy(a, key)
	t.release(le)
}

// lateRenewal lets a renewal, and the commands sent after it, reach Redis when another call has the
// key.
func (t *trial) lateRenewal() {
	next, key := t.locker(), t.key("late-renewal")
	locks, faults := t.network()
	if faults == nil {
		t.Skip("the client cannot be copied")
	}
	held := t.acquire(locks, key, lockcore.Terms{Lease: shortLease})
	late := faults.Hold(func(r faulty.Request) bool { return r.About(key) })
	p := t.wait(next, key, lockcore.Terms{Wait: 3 * shortLease, Lease: longLease}, held)
	t.happens(late.Struck(), "a renewal")
	faults.Silence() // otherwise the next renewal extends the lease
	if err := t.over(held.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("the ctx ended with %v, want lost", err)
	}
	le := p.lease(t)
	late.Deliver()
	faults.Heal()
	t.happens(late.Replied(), "a reply to the late renewal")
	t.busy(locks, key)
	t.release(le)
}

func (t *trial) happens(what <-chan struct{}, name string) {
	t.Helper()
	select {
	case <-what:
	case <-t.ctx.Done():
		t.Fatalf("inconclusive: %s did not happen", name)
	}
}

// lostReplies loses the first command of an acquire and the first command of a release.
func (t *trial) lostReplies() {
	other := t.locker()
	locks, faults := t.network()
	if faults == nil {
		t.Skip("the client cannot be copied")
	}
	plant := map[string]func(faulty.Match) *faulty.Fault{"request": faults.CutRequest, "reply": faults.CutReply, "silent-reply": faults.LoseReply}
	for name, fault := range plant {
		key := t.key(name)
		about := func(r faulty.Request) bool { return r.About(key) }
		asked := fault(about)
		held := t.acquire(locks, key, lockcore.Terms{Wait: 2 * shortLease, Lease: longLease})
		ended := fault(about)
		t.busy(other, key)
		t.release(held)
		for _, f := range []*faulty.Fault{asked, ended} {
			select {
			case <-f.Struck():
			default:
				t.Errorf("inconclusive: no %s was lost", name)
			}
		}
		// The release may continue in the background.
		t.release(t.acquire(other, key, lockcore.Terms{Wait: 2 * shortLease, Lease: longLease}))
	}
}

// revoke revokes a hold from another process.
func (t *trial) revoke() {
	a, b, key := t.locker(), t.locker(), t.key("revoked")
	held := t.acquire(a, key, lockcore.Terms{Lease: shortLease})
	if err := t.replied(func() error { return b.Revoke(t.ctx, event.KindExclusive, key) }); err != nil {
		t.Fatal(err)
	}
	if err := t.over(held.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("the ctx ended with %v, want revoked", err)
	}
	if h := t.state(b, event.KindExclusive, key); h.State == lockcore.StateHeld {
		t.busy(b, key)
	} else if h.State != lockcore.StateAbandoned { // its lease has expired meanwhile
		t.Errorf("the handler runs, and the key is %s", h.State)
	}
	if err := held.Release(t.ctx); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("release: %v, want revoked", err)
	}
	t.release(t.acquire(b, key, atOnce))
}

// minHold measures on the clock of this process; that of Redis may be 1 % faster.
func (t *trial) minHold() {
	const least = time.Second
	a, b, key := t.locker(), t.locker(), t.key("cooling")
	terms := lockcore.Terms{Wait: lockcore.NoWait, Lease: longLease, MinHold: least}
	begin := time.Now()
	t.release(t.acquire(a, key, terms))
	h := t.state(b, event.KindExclusive, key)
	if time.Since(begin) < least/2 && h.State != lockcore.StateCooling {
		t.Errorf("released before MinHold, the key is %s, want cooling", h.State)
	}
	t.release(t.acquire(b, key, lockcore.Terms{Wait: 5 * least, Lease: longLease}))
	if took := time.Since(begin); took < least*99/100 {
		t.Errorf("another call had the key after %v, want %v", took, least)
	}
	terms.MinHold = time.Hour
	t.release(t.acquire(a, key, terms))
	t.busy(b, key)
	if err := t.clear(b, event.KindExclusive, key); err != nil {
		t.Error(err)
	}
	held := t.acquire(b, key, atOnce)
	if err := t.clear(a, event.KindExclusive, key); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("Clear of a held key: %v, want busy", err)
	}
	t.release(held)
}
