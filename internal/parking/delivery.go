package parking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Delivery is one delivery of a task that can be parked.
//
// A task with several keys needs at most one parked entry: on the key that was busy in its last
// delivery. If it has an entry on another of its keys, the next task of that key is not woken. So
// the delivery removes that entry (leaveOthers) before it waits for the busy key and before it is
// parked there. A process that dies in between leaves a stale entry, which the wakers remove.
//
// While the task waits for a key, it holds the keys before it, but keyCounts has no hold of them.
// The release of such a key reports parked tasks as any release does, and they are woken.
type Delivery struct {
	*Pool
	locks   *lockcore.Locker
	mean    *Mean     // of the holds of the tasks of a middleware
	keys    []lockKey // without duplicates, in the order in which they are acquired
	name    string    // of the class, for events
	entry   string
	waiters int           // workers that may wait for the key
	lease   time.Duration // of the holds of this task
	minHold time.Duration // of the holds of this task
	share   backend.Share // the share of the key that the task needs; zero: the key alone
	slots   int           // tasks like this one that run at the same time
	last    bool          // the last attempt: asynq archives it on an error, so it waits and is never parked
	waits   bool          // startWait has counted it
	waitsOn lockKey       // the key that it was counted for
	left    lockKey       // the only key on which the task may have an entry, once leaveOthers was called
}

// Request describes a delivery.
type Request struct {
	Locks     *lockcore.Locker
	Kind      backend.Kind
	Keys      []string       // without duplicates, in the order in which they are acquired
	Terms     lockcore.Terms // of the keys
	Queue, ID string         // of the task
	Last      bool           // the last attempt
	Mean      *Mean          // of the holds of the tasks of a middleware
}

// Delivery returns the delivery of ctx.
func (p *Pool) Delivery(ctx context.Context, r Request) *Delivery {
	p.attach(r.Locks)
	terms := r.Terms
	v := &Delivery{
		Pool: p, locks: r.Locks, mean: r.Mean, keys: make([]lockKey, len(r.Keys)), name: terms.Name, entry: p.entry(r.Queue, r.ID), last: r.Last,
		share: backend.Share{Limit: terms.Limit, Weight: max(terms.Weight, 1)}, slots: 1,
		waiters: p.most, lease: cmp.Or(terms.Lease, r.Locks.Terms().Lease), minHold: cmp.Or(terms.MinHold, r.Locks.Terms().MinHold),
	}
	for i, key := range r.Keys {
		v.keys[i] = lockKey{r.Locks, r.Kind, key}
	}
	switch terms.Limit {
	case 0:
		v.share = backend.Share{}
	case lockcore.Unlimited:
		v.share.Limit, v.slots = backend.Unlimited, p.most
	default:
		v.slots = max(terms.Limit/v.share.Weight, 1)
	}
	if mean := v.mean.value() / time.Duration(v.slots); mean > 0 {
		v.waiters = int(max(min((2*p.check+mean-1)/mean, time.Duration(p.most)), 1))
		v.checkInterval(ctx, mean)
	}
	return v
}

// checkInterval reports once for a server that its TaskCheckInterval is too long to keep a key with
// parked tasks busy.
func (v *Delivery) checkInterval(ctx context.Context, mean time.Duration) {
	if can := time.Duration(v.most) * mean; v.check > can && slices.ContainsFunc(v.keys, v.mayHave) {
		v.reported.Do(func() {
			v.locks.Internal().Report(ctx, lockcore.Misconfigured{Problem: fmt.Sprintf(
				"asynqmw: asynq.Config.TaskCheckInterval was %v when Configure was called, longer than the work of the %d tasks that may wait for a key here (%v each): a key with parked tasks is idle between them; %v keeps it busy",
				v.check, v.most, mean.Round(time.Millisecond), max(can/2, 10*time.Millisecond).Round(time.Millisecond))})
		})
	}
}

// Run calls attempt, which acquires the keys, calls Begin, and runs the handler. If a key stays
// busy, Run parks the task on it, and at is its place. Without parking (v is nil) Run calls attempt
// once.
func (v *Delivery) Run(ctx context.Context, terms lockcore.Terms, attempt func(lockcore.Terms) (ran bool, err error)) (ran bool, at *Place, err error) {
	if v == nil {
		ran, err = attempt(terms)
		return ran, nil, err
	}
	for try := 1; ; try++ {
		ran, err = v.acquire(ctx, terms, attempt)
		if ran {
			return true, nil, err
		}
		busy, k := v.busyKey(err)
		if busy == nil {
			v.leave(ctx)
			return false, nil, err
		}
		v.leaveOthers(ctx, k)
		if v.last || try > parkTries {
			return false, nil, err
		}
		at, free := v.park(ctx, k, busy, try < parkTries)
		if !free {
			return false, at, err
		}
		terms.Wait = lockcore.NoWait // the key was released after the attempt
	}
}

// RanAlready reports whether a late wake made asynq run this task again. RunTask of the Inspector
// also runs a completed task, and it may reach Redis seconds after the lookup before it, because it
// waits for a connection or is sent again. asynq stores the time of the completion and the last
// error. They show that the task completed less than lateWake ago, and was parked on one of its
// keys before. An operator who runs such a task by hand has to wait until lateWake is over, and
// learns that from RerunSkipped.
func (v *Delivery) RanAlready(ctx context.Context) bool {
	if v == nil || !slices.ContainsFunc(v.keys, v.mayBeLate) {
		return false
	}
	info := v.lookup()
	if info == nil || time.Since(info.CompletedAt) >= lateWake {
		return false
	}
	i := slices.IndexFunc(v.keys, func(k lockKey) bool { return strings.Contains(info.LastErr, parkedOn(k.kind, k.name)) })
	if i < 0 {
		return false
	}
	v.leave(ctx)
	v.locks.Internal().Report(ctx, guard.RerunSkipped{
		Name: v.name, Kind: lockcore.Kind(v.keys[i].kind), Key: v.keys[i].name, Completed: time.Since(info.CompletedAt),
	})
	return true
}

// lookup returns the task's state in asynq, or nil if the Inspector does not reply within maxLook.
// A delivery does not wait longer, because the Inspector may block for many seconds and takes no
// ctx. If maxLookups are blocked, further deliveries do not wait at all.
func (v *Delivery) lookup() *asynq.TaskInfo {
	select {
	case v.lookups <- struct{}{}:
	default:
		return nil
	}
	found := make(chan *asynq.TaskInfo, 1) // with room, so that a late reply ends the goroutine
	go func() {                            // owner: the parking, as of a waker; it ends by the timeouts of the Inspector's client
		defer func() { <-v.lookups }()
		queue, id, _ := v.task(v.entry)
		info, err := v.inspector.GetTaskInfo(queue, id)
		if err != nil {
			info = nil
		}
		found <- info
	}()
	t := time.NewTimer(maxLook)
	defer t.Stop()
	select {
	case info := <-found:
		return info
	case <-t.C:
		return nil
	}
}

// busyKey returns the conflict of err and its key, which is one of v. Without a conflict busy is
// nil.
func (v *Delivery) busyKey(err error) (busy *lockcore.BusyError, k lockKey) {
	busy, ok := errors.AsType[*lockcore.BusyError](err)
	if !ok {
		return nil, lockKey{}
	}
	for _, k := range v.keys {
		if k.name == busy.Key {
			return busy, k
		}
	}
	return nil, lockKey{}
}

// acquire calls attempt. It waits for a busy key only if there is room for another waiting worker.
func (v *Delivery) acquire(ctx context.Context, terms lockcore.Terms, attempt func(lockcore.Terms) (bool, error)) (ran bool, err error) {
	defer func() { // also if an Observer panics
		if v.waits {
			v.endWait()
		}
	}()
	once, began, tried, k := terms, time.Now(), false, v.keys[0]
	once.Wait = lockcore.NoWait
	if !v.last && (terms.Wait == lockcore.NoWait || !v.busyHere(k)) { // most keys are free, and need no room
		tried = true
		ran, err = attempt(once)
		busy, key := v.busyKey(err)
		if unavailable := errors.Is(err, lockcore.ErrUnavailable); ran || terms.Wait == lockcore.NoWait || !unavailable && busy == nil {
			return ran, err
		} else if unavailable { // the key is not busy: the call uses the rest of Wait for the outage of Redis
			if terms.Wait != lockcore.Forever {
				terms.Wait -= time.Since(began)
			}
			if terms.Wait <= 0 {
				return false, err
			}
			return attempt(terms)
		}
		k = key
	}
	if v.waits, v.waitsOn = v.startWait(k, v.waiters, v.last), k; v.waits {
		v.leaveOthers(ctx, k)
		return attempt(terms)
	}
	if !tried {
		return attempt(once)
	}
	return ran, err
}

func (v *Delivery) endWait() {
	v.waits = false
	v.Pool.endWait(v.waitsOn)
}

// Begin removes the task from the parked tasks of its keys, and wakes the next ones. So these are
// delivered while this handler runs. Call Begin when the task has its keys, and end when the
// handler has returned.
func (v *Delivery) Begin(ctx context.Context) (end func()) {
	if v == nil {
		return func() {}
	}
	if v.waits {
		v.endWait()
	}
	start := time.Now() // after the hold began, so MinHold is over when wakeCooled expects it
	for _, k := range v.keys {
		v.startHold(k)
	}
	defer func() {
		if end == nil { // an Observer panics
			v.endHolds()
		}
	}()
	for _, k := range v.keys {
		if !v.mayHave(k) {
			continue
		}
		room := v.learn(k, v.waiters)
		if r, err := v.unpark(ctx, k, backend.UnparkRequest{Remove: []string{v.entry}, Woken: room}); err == nil { // else the next hold wakes
			if len(r.Wake) > 0 {
				v.wake(k, room, r)
			}
			v.report(ctx, k, r)
		}
	}
	began := time.Now()
	return func() {
		v.mean.add(time.Since(began))
		v.endHolds()
		if left := v.minHold - time.Since(start); left > 0 {
			time.AfterFunc(left, v.wakeCooled)
		}
	}
}

func (v *Delivery) endHolds() {
	for _, k := range v.keys {
		v.endHold(k)
	}
}

// wakeCooled wakes the next task at the end of MinHold, because the release of a key that cools
// does not report parked tasks. If a worker of this server holds the key or waits for it, its hold
// wakes them instead. A key with shares may have room for a parked task beside the holds, so it is
// always checked.
func (v *Delivery) wakeCooled() {
	for _, k := range v.keys {
		if v.mayHave(k) && (v.share.Limit > 0 || !v.busyHere(k)) {
			v.wakeFree(k, max(v.learn(k, 0), 1))
		}
	}
}

// leave removes the entry of a task that ends without its keys, for example because the key is
// done.
func (v *Delivery) leave(ctx context.Context) {
	for _, k := range v.keys {
		if v.mayHave(k) {
			v.leaveKey(ctx, k)
		}
	}
}

// leaveOthers removes the entries of a task with several keys on all of them but k, the busy one.
// This process may not know that a key has parked tasks, so leaveOthers does not check mayHave.
func (v *Delivery) leaveOthers(ctx context.Context, k lockKey) {
	if len(v.keys) == 1 || v.left == k { //planted:other-keys-left
		return
	}
	v.left = k
	for _, other := range v.keys {
		if other != k {
			v.leaveKey(ctx, other)
		}
	}
}

// leaveKey removes the entry of the task on k. A task with several keys may have been woken for k,
// and does not get k because of another key. So the next tasks of k are woken now. Otherwise a
// waker finds them when it looks at k again.
func (v *Delivery) leaveKey(ctx context.Context, k lockKey) {
	r, err := v.unpark(ctx, k, backend.UnparkRequest{Remove: []string{v.entry}})
	if err != nil {
		return // the wakers find that the task is not parked on k
	}
	if len(v.keys) > 1 && r.Removed > 0 && r.Count > 0 {
		v.wake(k, max(v.learn(k, v.waiters), 1), backend.UnparkReply{})
	}
	v.report(ctx, k, r)
}

func (v *Delivery) report(ctx context.Context, k lockKey, r backend.UnparkReply) {
	if r.Removed > 0 {
		v.locks.Internal().Report(ctx, guard.Unparked{
			Name: v.name, Kind: lockcore.Kind(k.kind), Key: k.name, Parked: r.Age, Count: r.Count, Oldest: r.Oldest,
		})
	}
}

// park parks the task on k, which is busy, and returns its place. free is true if k is free or
// done. It is also true if look is true and k has room for the share of the task. Then the caller
// requests its keys again. If k has too many parked tasks, or Redis is unavailable, park returns
// neither: the conflict is then handled as without parking.
func (v *Delivery) park(ctx context.Context, k lockKey, busy *lockcore.BusyError, look bool) (at *Place, free bool) {
	hidden := v.locks.Internal()
	hidden.Subscribe(0) // before the task is parked, because it may be woken at once
	key := hidden.Backend.Key(k.kind, k.name)
	r, err := hidden.Backend.Park(ctx, backend.ParkRequest{
		Key: &key, Entry: v.entry, Most: maxParked, Keep: 2 * (max(v.lease, busy.Remaining) + maxExtraDelay),
	})
	switch {
	case err != nil || r.Outcome == backend.ParkFull:
		return nil, false
	case r.Outcome == backend.ParkNone:
		return nil, true
	}
	v.learn(k, v.waiters)
	if look && v.hasRoom(ctx, &key) {
		return nil, true // the entry keeps the place
	}
	at = &Place{kind: k.kind, before: r.Before, Delay: v.comeBack(ctx, busy, r.Before)}
	hidden.Subscribe(at.Delay + v.delay) // another process may end the hold
	hidden.Report(ctx, guard.Parked{
		Name: v.name, Kind: lockcore.Kind(k.kind), Key: k.name,
		Again: r.Age > 0, Before: r.Before, Count: r.Count, Oldest: r.Oldest, Delay: at.Delay,
	})
	return at, false
}

// hasRoom reports whether there is room for the share of the task, and no request waits for the
// key. A release before the task was parked did not report it. Without this look the task would
// wait for the next release, although there is room. A release after it reports the task.
func (v *Delivery) hasRoom(ctx context.Context, key *backend.Key) bool {
	if v.share.Limit == 0 {
		return false
	}
	s, err := v.locks.Internal().Backend.Inspect(ctx, key, backend.NoRecord)
	return err == nil && s.State == backend.StateShared && s.Queue == 0 && !s.Revoked && s.Weights+v.share.Weight <= v.share.Limit
}

// comeBack returns the delay after which the task comes back if it is not woken. It is a lease, or
// the rest of MinHold (at most maxExtraDelay). Then the expected time of the tasks before it is
// added (at most maxExtraDelay), and up to a quarter of the sum. It ends before the task's
// deadline, but is at least 1 s.
func (v *Delivery) comeBack(ctx context.Context, busy *lockcore.BusyError, before int) time.Duration {
	d := v.lease
	if busy.Holder == (lockcore.Holder{}) && (busy.Remaining > backend.ReserveTime || v.minHold > 0) { // cooling
		d = min(busy.Remaining, maxExtraDelay)
	}
	each := min(max(v.mean.value(), v.minHold), maxExtraDelay) / time.Duration(v.slots)
	d += min(time.Duration(before)*each, maxExtraDelay)
	d += rand.N(d/4 + 1)
	if end, ok := ctx.Deadline(); ok && d > v.until(end) {
		// asynq.Timeout sets a deadline of this delivery only, asynq.Deadline one of the task. The
		// ctx does not say which of them it has.
		queue, id, _ := v.task(v.entry)
		if info, err := v.inspector.GetTaskInfo(queue, id); err == nil {
			end = info.Deadline
		}
		if !end.IsZero() {
			d = min(d, v.until(end))
		}
	}
	return max(d, time.Second)
}

// until returns the longest delay after which a task still comes back before deadline.
func (v *Delivery) until(deadline time.Time) time.Duration {
	return time.Until(deadline) - v.delay - v.check - MaxMargin
}
