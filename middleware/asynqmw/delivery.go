package asynqmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// delivery is one delivery of a task that can be parked.
type delivery struct {
	*parking
	d       *decorator
	k       lockKey
	name    string // of the class, for events
	entry   string
	waiters int           // workers that may wait for the key
	lease   time.Duration // of the holds of this task
	minHold time.Duration // of them
	last    bool          // the last attempt: asynq archives it on an error, so it waits and is never parked
	waits   bool          // startWait has counted it
}

// parkable returns the delivery of ctx, or nil if tasks are never parked: without Parking, or under
// another ConflictPolicy than RetryLater.
func (d *decorator) parkable(ctx context.Context, kind backend.Kind, key string, terms lockcore.Terms) *delivery {
	p, _ := ctx.Value(configuredKey{}).(*parking)
	id, ok := asynq.GetTaskID(ctx)
	if p == nil || !ok || d.busy != RetryLater {
		return nil
	}
	p.attach(d.locks)
	queue, _ := asynq.GetQueueName(ctx)
	v := &delivery{
		parking: p, d: d, k: lockKey{d.locks, kind, key}, name: terms.Name, entry: p.entry(queue, id), last: lastAttempt(ctx),
		waiters: p.most, lease: cmp.Or(terms.Lease, d.locks.Terms().Lease), minHold: cmp.Or(terms.MinHold, d.locks.Terms().MinHold),
	}
	if mean := d.meanHold(); mean > 0 {
		v.waiters = int(max(min((2*p.check+mean-1)/mean, time.Duration(p.most)), 1))
		v.checkInterval(ctx, mean)
	}
	return v
}

// checkInterval reports once for a server that its TaskCheckInterval is too long to keep a key with
// parked tasks busy.
func (v *delivery) checkInterval(ctx context.Context, mean time.Duration) {
	if can := time.Duration(v.most) * mean; v.check > can && v.mayHave(v.k) {
		v.reported.Do(func() {
			v.d.locks.Internal().Report(ctx, lockcore.Misconfigured{Problem: fmt.Sprintf(
				"asynqmw: asynq.Config.TaskCheckInterval was %v when Configure was called, longer than the work of the %d tasks that may wait for a key here (%v each): a key with parked tasks is idle between them; %v keeps it busy",
				v.check, v.most, mean.Round(time.Millisecond), max(can/2, 10*time.Millisecond).Round(time.Millisecond))})
		})
	}
}

// run calls attempt, which acquires the key and runs the handler; the handler calls begin. If the
// key stays busy, run parks the task, and at is its place. Without parking (v is nil) run calls
// attempt once.
func (v *delivery) run(ctx context.Context, terms lockcore.Terms, attempt func(lockcore.Terms) (ran bool, err error)) (ran bool, at *place, err error) {
	if v == nil {
		ran, err = attempt(terms)
		return ran, nil, err
	}
	for try := 1; ; try++ {
		ran, err = v.acquire(terms, attempt)
		busy, ok := errors.AsType[*lockcore.BusyError](err)
		switch {
		case ran:
			return true, nil, err
		case !ok:
			v.leave(ctx)
			return false, nil, err
		case v.last || try > parkTries:
			return false, nil, err
		}
		at, free := v.park(ctx, busy)
		if !free {
			return false, at, err
		}
		terms.Wait = lockcore.NoWait // the key was released after the attempt
	}
}

// acquire calls attempt. It waits for a busy key only if there is room for another waiting worker.
func (v *delivery) acquire(terms lockcore.Terms, attempt func(lockcore.Terms) (bool, error)) (ran bool, err error) {
	defer func() { // also if an Observer panics
		if v.waits {
			v.endWait()
		}
	}()
	once, began, tried := terms, time.Now(), false
	once.Wait = lockcore.NoWait
	if !v.last && (terms.Wait == lockcore.NoWait || !v.busyHere(v.k)) { // most keys are free, and need no room
		tried = true
		ran, err = attempt(once)
		if unavailable := errors.Is(err, lockcore.ErrUnavailable); ran || terms.Wait == lockcore.NoWait || !unavailable && !errors.Is(err, lockcore.ErrBusy) {
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
	}
	if v.waits = v.startWait(v.k, v.waiters, v.last); v.waits {
		return attempt(terms)
	}
	if !tried {
		return attempt(once)
	}
	return ran, err
}

func (v *delivery) endWait() {
	v.waits = false
	v.parking.endWait(v.k)
}

// begin removes the task from the parked tasks of its key, and wakes the next ones, so that they
// are delivered while this handler runs. Call begin when the task has the key, and end when the
// handler has returned.
func (v *delivery) begin(ctx context.Context) (end func()) {
	if v == nil {
		return func() {}
	}
	if v.waits {
		v.endWait()
	}
	start := time.Now() // after the hold began, so MinHold is over when wakeCooled expects it
	v.startHold(v.k)
	defer func() {
		if end == nil { // an Observer panics
			v.endHold(v.k)
		}
	}()
	if v.mayHave(v.k) {
		room := v.learn(v.k, v.waiters)
		if r, err := v.unpark(ctx, v.k, []string{v.entry}, room, 0); err == nil { // else the next hold wakes
			v.report(ctx, r)
			if len(r.Wake) > 0 {
				v.wake(v.k, room, r.Wake)
			}
		}
	}
	began := time.Now()
	return func() {
		v.d.addHold(time.Since(began))
		v.endHold(v.k)
		if left := v.minHold - time.Since(start); left > 0 {
			time.AfterFunc(left, v.wakeCooled)
		}
	}
}

// wakeCooled wakes the next task at the end of MinHold, because the release of a key that cools does
// not report parked tasks. A worker that waits gets the key then, and its hold wakes.
func (v *delivery) wakeCooled() {
	if v.mayHave(v.k) && !v.busyHere(v.k) {
		v.wakeFree(v.k, max(v.learn(v.k, 0), 1))
	}
}

// leave removes the entry of a task that ends without the key, for example because the key is done.
func (v *delivery) leave(ctx context.Context) {
	if v.mayHave(v.k) {
		if r, err := v.unpark(ctx, v.k, []string{v.entry}, 0, 0); err == nil {
			v.report(ctx, r)
		}
	}
}

func (v *delivery) report(ctx context.Context, r backend.UnparkReply) {
	if r.Removed > 0 {
		v.d.locks.Internal().Report(ctx, guard.Unparked{
			Name: v.name, Kind: lockcore.Kind(v.k.kind), Key: v.k.name, Parked: r.Age, Count: r.Count, Oldest: r.Oldest,
		})
	}
}

// park parks the task and returns its place. free is true if the key is free or done: then the
// caller requests it again. If the key has too many parked tasks, or Redis is unavailable, park
// returns neither: the conflict is then handled as without parking.
func (v *delivery) park(ctx context.Context, busy *lockcore.BusyError) (at *place, free bool) {
	hidden := v.d.locks.Internal()
	hidden.Subscribe(0) // before the task is parked, because it may be woken at once
	key := hidden.Backend.Key(v.k.kind, v.k.name)
	r, err := hidden.Backend.Park(ctx, backend.ParkRequest{
		Key: &key, Entry: v.entry, Most: maxParked, Keep: 2 * (max(v.lease, busy.Remaining) + maxExtraDelay),
	})
	switch {
	case err != nil || r.Outcome == backend.ParkFull:
		return nil, false
	case r.Outcome == backend.ParkNone:
		return nil, true
	}
	v.learn(v.k, v.waiters)
	at = &place{kind: v.k.kind, before: r.Before, delay: v.comeBack(ctx, busy, r.Before)}
	hidden.Subscribe(at.delay + v.delay) // another process may end the hold
	hidden.Report(ctx, guard.Parked{
		Name: v.name, Kind: lockcore.Kind(v.k.kind), Key: v.k.name,
		Again: r.Age > 0, Before: r.Before, Count: r.Count, Oldest: r.Oldest, Delay: at.delay,
	})
	return at, false
}

// comeBack returns the delay after which the task comes back if it is not woken. It is a lease, or
// the rest of MinHold (at most maxExtraDelay), plus the mean hold time of each task before it (at
// most maxExtraDelay in all), plus up to a quarter. It ends before the task's deadline, but is at
// least 1 s.
func (v *delivery) comeBack(ctx context.Context, busy *lockcore.BusyError, before int) time.Duration {
	d := v.lease
	if busy.Holder == (lockcore.Holder{}) && (busy.Remaining > backend.ReserveTime || v.minHold > 0) { // cooling
		d = min(busy.Remaining, maxExtraDelay)
	}
	each := min(max(v.d.meanHold(), v.minHold), maxExtraDelay)
	d += min(time.Duration(before)*each, maxExtraDelay)
	d += rand.N(d/4 + 1)
	if end, ok := ctx.Deadline(); ok && d > v.until(end) {
		// asynq.Timeout sets a deadline of this delivery only, asynq.Deadline one of the task. The ctx
		// does not say which of them it has.
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
func (v *delivery) until(deadline time.Time) time.Duration {
	return time.Until(deadline) - v.delay - v.check - maxMargin
}
