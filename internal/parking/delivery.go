package parking

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/event"
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
	locks   *locker
	mean    *Mean         // of the holds of the tasks of a middleware
	needs   []need        // without duplicates
	name    string        // of the class, for events
	task    string        // its name, for Queue
	entry   string        // names the task in the backend
	lease   time.Duration // of the holds of this task
	minHold time.Duration // of the holds of this task
	last    bool
	found   *Task   // the task, once it was looked up
	waits   bool    // startWait has counted it
	waitsOn lockKey // the key that it was counted for
	left    lockKey // the only key on which the task may have an entry, once leaveOthers was called
}

// need is a key that a delivery needs.
type need struct {
	lockKey

	part     part
	share    backend.Share // the share of the key that the task needs; zero: the key alone
	slots    int           // tasks like this one that run at the same time
	each     time.Duration // between two tasks: the mean of the holds for each slot, at least interval; 0: not known
	interval time.Duration // between two begins, by the rate; 0: none
}

// Key is a key of a task.
type Key struct {
	Name   string
	Limit  lockcore.Limit // of the share of the key, or only its Rate; zero: the key alone
	Weight int            // of the key among all keys with parked tasks, at least 1
}

// Request describes a delivery.
type Request struct {
	Locks *lockcore.Locker
	Kind  event.Kind
	Keys  []Key          // different ones; the first is the one to wait for if it is busy here
	Terms lockcore.Terms // of the keys
	Task  string         // the name of the task, for Queue
	Last  bool           // the last attempt: the queue gives up the task on an error, so it waits and is never parked
	Mean  *Mean          // of the holds of the tasks that are guarded like this one
}

// Delivery returns the delivery that r describes.
func (p *Pool) Delivery(r Request) *Delivery {
	terms, l := r.Terms, p.attach(r.Locks)
	v := &Delivery{
		Pool: p, locks: l, mean: r.Mean, needs: make([]need, len(r.Keys)), name: terms.Name, task: r.Task, entry: p.prefix + r.Task, last: r.Last,
		lease: cmp.Or(terms.Lease, l.Terms().Lease), minHold: cmp.Or(terms.MinHold, l.Terms().MinHold),
	}
	for i, key := range r.Keys {
		v.needs[i] = v.need(backend.Kind(r.Kind), key)
		if key.Limit.N == 0 && key.Limit.Rate.N > 0 && len(r.Keys) == 1 {
			v.minHold = 0 // nothing is held
		}
	}
	return v
}

func (v *Delivery) need(kind backend.Kind, key Key) need {
	n := need{
		lockKey: lockKey{v.locks, kind, key.Name}, part: part{quota: v.most, weight: key.Weight},
		share: backend.Share{Limit: key.Limit.N, Weight: max(key.Limit.Weight, 1)}, slots: 1,
	}
	switch key.Limit.N {
	case 0:
		n.share = backend.Share{}
	case lockcore.Unlimited:
		n.share.Limit, n.slots = backend.Unlimited, v.most
	default:
		n.slots = max(key.Limit.N/n.share.Weight, 1)
	}
	if key.Limit.Rate.N > 0 {
		n.interval = key.Limit.Rate.Interval()
	}
	if n.each = max(v.mean.value()/time.Duration(n.slots), n.interval); n.each > 0 {
		n.part.quota = int(max(min((2*v.Check+n.each-1)/n.each, time.Duration(v.most)), 1))
	}
	return n
}

// Idle reports whether Options.Check is too long to keep a key with parked tasks busy. The workers
// that may wait for a key here then end their tasks, of the mean time each, before the next look at
// the queue.
func (v *Delivery) Idle() (waiting int, each time.Duration, idle bool) {
	for _, k := range v.needs {
		if k.each > 0 && v.Check > time.Duration(v.most)*k.each && v.mayHave(k.lockKey) {
			return v.most, k.each, true
		}
	}
	return 0, 0, false
}

// Run calls acquire, which acquires the keys, calls Begin, and runs the handler. If a key stays
// busy, Run parks the task on it, and at is its place. Without parking (v is nil) Run calls acquire
// once.
func (v *Delivery) Run(ctx context.Context, terms lockcore.Terms, acquire func(lockcore.Terms) (ran bool, err error)) (ran bool, at *Place, err error) {
	if v == nil {
		ran, err = acquire(terms)
		return ran, nil, err
	}
	for try := 1; ; try++ {
		ran, err = v.tryOrWait(ctx, terms, acquire)
		if ran {
			return true, nil, err
		}
		busy, k := v.busyKey(err)
		if busy == nil {
			v.leave(ctx)
			return false, nil, err
		}
		v.leaveOthers(ctx, k.lockKey)
		if v.last || try > parkTries {
			return false, nil, err
		}
		at, free, refused := v.park(ctx, k, busy, try < parkTries)
		if !free {
			return false, at, cmp.Or(refused, err)
		}
		terms.Wait = lockcore.NoWait // the key was released after the call
	}
}

// RanAlready reports whether a late wake made the queue run this task again. Queue.Run may also run
// a completed task, and it may take effect seconds after the lookup before it. The queue stores the
// time of the completion and the last error. They show that the task completed less than lateWake
// ago, and was parked on one of its keys before. An operator who runs such a task by hand has to
// wait until lateWake has passed, and learns that from RerunSkipped.
func (v *Delivery) RanAlready(ctx context.Context) bool {
	if v == nil || !slices.ContainsFunc(v.needs, func(k need) bool { return v.mayBeLate(k.lockKey) }) {
		return false
	}
	t := v.lookup()
	if time.Since(t.Completed) >= lateWake {
		return false
	}
	i := slices.IndexFunc(v.needs, func(k need) bool { return strings.Contains(t.LastError, v.parkedOn(k.lockKey)) })
	if i < 0 {
		return false
	}
	v.leave(ctx)
	v.locks.hidden.Report(ctx, event.RerunSkipped{
		Name: v.name, Kind: event.Kind(v.needs[i].kind), Key: v.needs[i].name, Completed: time.Since(t.Completed),
	})
	return true
}

// ErrRefused is in the chain of the error of a task that the queue cannot delay.
var ErrRefused = errors.New("parking: the queue cannot delay the task")

// refusedError is the error of a task that the queue cannot delay.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }
func (e *refusedError) Is(target error) bool {
	return target == ErrRefused || target == lockcore.ErrNotRun
}

// Refused returns an error if the queue cannot delay the task. It returns nil if the queue does not
// reply.
func (v *Delivery) Refused() error {
	if v == nil {
		return nil
	}
	if why := v.lookup().Refused; why != "" {
		return &refusedError{why}
	}
	return nil
}

// Entry returns the text that names the task in the backend.
func (v *Delivery) Entry() string { return v.entry }

// WakeOthers wakes up to n parked tasks of the one key, although it is not free. They end without it.
func (v *Delivery) WakeOthers(n int) {
	if v != nil {
		v.wake(v.needs[0].lockKey, n, backend.UnparkReply{})
	}
}

// lookup returns the task in its queue, or a zero Task if the queue does not reply within maxLook. A
// delivery does not wait longer, because the queue may block for many seconds. If maxLookups are
// blocked, further deliveries do not wait at all. A delivery looks up its task once.
func (v *Delivery) lookup() Task {
	if v.found == nil {
		t := v.lookUp()
		v.found = &t
	}
	return *v.found
}

func (v *Delivery) lookUp() Task {
	select {
	case v.lookups <- struct{}{}:
	default:
		return Task{}
	}
	found := make(chan Task, 1) // with room, so that a late reply ends the goroutine
	go func() {                 // owner: the Pool, as of a waker; it ends when the queue gives up the call
		defer func() { <-v.lookups }()
		found <- v.Queue.Lookup(v.task)
	}()
	timer := time.NewTimer(maxLook)
	defer timer.Stop()
	select {
	case t := <-found:
		return t
	case <-timer.C:
		return Task{}
	}
}

// busyKey returns the conflict of err and its key, which is one of v. Without a conflict busy is
// nil.
func (v *Delivery) busyKey(err error) (busy *lockcore.BusyError, k need) {
	busy, ok := errors.AsType[*lockcore.BusyError](err)
	if !ok {
		return nil, need{}
	}
	for _, k := range v.needs {
		if k.name == busy.Key {
			return busy, k
		}
	}
	return nil, need{}
}

// tryOrWait calls acquire. It waits for a busy key only if there is room for another waiting worker.
func (v *Delivery) tryOrWait(ctx context.Context, terms lockcore.Terms, acquire func(lockcore.Terms) (bool, error)) (ran bool, err error) {
	defer func() { // also if an Observer panics
		if v.waits {
			v.endWait()
		}
	}()
	once, began, tried, k := terms, time.Now(), false, v.needs[0]
	once.Wait = lockcore.NoWait
	if !v.last && (terms.Wait == lockcore.NoWait || !v.busyHere(k.lockKey)) { // most keys are free, and need no room
		tried = true
		ran, err = acquire(once)
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
			return acquire(terms)
		}
		k = key
	}
	if v.waits, v.waitsOn = v.startWait(k.lockKey, k.part.quota, v.last), k.lockKey; v.waits {
		v.leaveOthers(ctx, k.lockKey)
		return acquire(terms)
	}
	if !tried {
		return acquire(once)
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
	for _, k := range v.needs {
		v.startHold(k.lockKey)
	}
	defer func() {
		if end == nil { // an Observer panics
			v.endHolds()
		}
	}()
	for _, k := range v.needs {
		if !v.mayHave(k.lockKey) {
			continue
		}
		room, _ := v.noteParked(k.lockKey, k.part)
		if early := k.interval - v.Check; early > 0 { // a task that is woken now would come too early
			room = 0
			time.AfterFunc(early, v.wakeCooled)
		}
		if r, err := v.unpark(ctx, k.lockKey, backend.UnparkRequest{Remove: []string{v.entry}, Woken: room}); err == nil { // else the next hold wakes
			if len(r.Wake) > 0 {
				v.wake(k.lockKey, room, r)
			}
			v.report(ctx, k.lockKey, r)
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
	for _, k := range v.needs {
		v.endHold(k.lockKey)
	}
}

// wakeCooled wakes the next task at the end of MinHold, because the release of a key that cools
// does not report parked tasks. It also wakes the next task before a rate lets it begin. If a worker of this server holds the key or waits for it, its hold
// wakes them instead. A key with shares may have room for a parked task beside the holds, so it is
// always checked.
func (v *Delivery) wakeCooled() {
	for _, k := range v.needs {
		if v.mayHave(k.lockKey) && (k.interval > 0 || k.share.Limit > 0 || !v.busyHere(k.lockKey)) {
			if v.minHold > 0 { // at a rate's turn, tasks come back by themselves, and weights have no effect
				v.noteUnused(k.lockKey)
			}
			_, want := v.noteParked(k.lockKey, part{weight: k.part.weight})
			v.wakeFree(k.lockKey, want)
		}
	}
}
