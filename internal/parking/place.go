package parking

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Place is the place of a task among the parked tasks of its key.
type Place struct {
	Text  string        // the queue must store it as the error of the delivery, or as a part of it
	Delay time.Duration // after which the task must come back if it is not woken
}

// park parks the task on k, which is busy, and returns its place. free is true if k is free or
// done. It is also true if look is true and k has room for the share of the task. Then the caller
// requests its keys again. If k has too many parked tasks, or Redis is unavailable, park returns
// neither: the conflict is then handled as without parking. refused says that the queue cannot delay
// the task, which park asks when it parks the task for the first time.
func (v *Delivery) park(ctx context.Context, k need, busy *lockcore.BusyError, look bool) (at *Place, free bool, refused error) {
	hidden := v.locks.hidden
	hidden.Subscribe(0) // before the task is parked, because it may be woken at once
	key := hidden.Backend.Key(k.kind, k.name)
	r, err := hidden.Backend.Park(ctx, backend.ParkRequest{
		Key: &key, Entry: v.entry, Most: maxParked, Keep: 2 * (max(v.lease, busy.Remaining) + maxExtraDelay), Free: busy.Exact,
	})
	switch {
	case errors.Is(err, backend.ErrUnsupported):
		v.unable.Do(func() {
			hidden.Report(ctx, event.Misconfigured{Problem: v.Name + ": tasks are not parked on a majority of servers: a task whose key is busy comes back by its own delay"})
		})
		return nil, false, nil
	case err != nil || r.Outcome == backend.ParkFull:
		return nil, false, nil //nolint:nilerr // as without parking
	case r.Outcome == backend.ParkNone:
		return nil, true, nil
	}
	v.noteParked(k.lockKey, k.part)
	if r.Age > 0 {
		v.noteBusy(k.lockKey)
	}
	if look && !busy.Exact && v.hasRoom(ctx, k.share, &key) {
		return nil, true, nil // the entry keeps the place
	}
	if r.Age == 0 {
		if refused = v.Refused(); refused != nil {
			_, _ = v.unpark(ctx, k.lockKey, backend.UnparkRequest{Remove: []string{v.entry}}) // else the wakers remove it
			return nil, false, refused
		}
	}
	switch { // no release tells that the rate lets a task begin, or that a pause has ended
	case busy.Exact:
		time.AfterFunc(max(busy.Remaining-v.Check, 0), v.wakeCooled)
	case busy.PauseReason != "":
		time.AfterFunc(busy.Remaining, v.wakeCooled)
	}
	at = &Place{Text: v.text(k.lockKey, busy, r.Before), Delay: v.comeBack(ctx, k, busy, r.Before)}
	hidden.Subscribe(at.Delay + v.Late) // another process may end the hold
	hidden.Report(ctx, event.Parked{
		Name: v.name, Kind: event.Kind(k.kind), Key: k.name,
		Again: r.Age > 0, Before: r.Before, Count: r.Count, Oldest: r.Oldest, Delay: at.Delay,
	})
	return at, false, nil
}

// text returns Place.Text.
func (v *Delivery) text(k lockKey, b *lockcore.BusyError, before int) string {
	text := fmt.Sprintf("%s with %d before it", v.parkedOn(k), before)
	switch {
	case b.PauseReason != "":
		return fmt.Sprintf("%s; paused for another %v: %s", text, b.Remaining.Round(time.Millisecond), b.PauseReason)
	case b.Exact:
		return fmt.Sprintf("%s; its rate lets the next one begin in %v", text, b.Remaining.Round(time.Millisecond))
	case b.Holder == (event.Holder{}):
		return fmt.Sprintf("%s; the key is kept for another %v", text, b.Remaining.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; held for %v by %v", text, b.HeldFor.Round(time.Millisecond), b.Holder)
}

// hasRoom reports whether there is room for the share of the task, and no request waits for the
// key. A release before the task was parked did not report it. Without this look the task would
// wait for the next release, although there is room. A release after it reports the task.
func (v *Delivery) hasRoom(ctx context.Context, share backend.Share, key *backend.Key) bool {
	if share.Limit == 0 {
		return false
	}
	s, err := v.locks.hidden.Backend.Inspect(ctx, key, backend.NoRecord)
	return err == nil && s.State == backend.StateShared && s.Queue == 0 && !s.Revoked && s.Weights+share.Weight <= s.Restriction.LimitOf(share)
}

// comeBack returns the delay after which the task comes back if it is not woken. It is a lease, or
// the rest of MinHold (at most maxExtraDelay). Then the expected time of the tasks before it is
// added (at most maxExtraDelay), and up to a quarter of the sum. It ends before the task's
// deadline, but is at least 1 s. If the rate decides, it is the time until the turn of the task.
func (v *Delivery) comeBack(ctx context.Context, k need, busy *lockcore.BusyError, before int) time.Duration {
	if busy.Exact { // its own turn
		return max(min(busy.Remaining+time.Duration(before)*k.interval, maxRateDelay), time.Second)
	}
	d := v.lease
	if busy.Holder == (event.Holder{}) && (busy.Remaining > backend.ReserveTime || v.minHold > 0) { // cooling
		d = min(busy.Remaining, maxExtraDelay)
	}
	each := min(max(v.mean.value(), v.minHold), maxExtraDelay) / time.Duration(k.slots)
	d += min(time.Duration(before)*each, maxExtraDelay)
	return max(v.Before(ctx, d+rand.N(d/4+1)), time.Second)
}

// Before returns d, or less if the task must come back earlier because of its deadline.
func (v *Delivery) Before(ctx context.Context, d time.Duration) time.Duration {
	if v == nil {
		return d
	}
	if end, ok := ctx.Deadline(); ok && d > v.until(end) {
		// The deadline may be that of this delivery only. The ctx does not say so.
		if t := v.Queue.Lookup(v.task); t.State != Unknown && t.State != Gone {
			end = t.Deadline
		}
		if !end.IsZero() {
			d = min(d, v.until(end))
		}
	}
	return d
}

const maxRateDelay = 24 * time.Hour

// MaxMargin is the longest time between the end of a wait and the task's deadline.
const MaxMargin = time.Second

// until returns the longest delay after which a task still comes back before deadline.
func (v *Delivery) until(deadline time.Time) time.Duration {
	return time.Until(deadline) - v.Late - v.Check - MaxMargin
}

// leave removes the entry of a task that ends without its keys, for example because the key is
// done.
func (v *Delivery) leave(ctx context.Context) {
	for _, k := range v.needs {
		if v.mayHave(k.lockKey) {
			v.leaveKey(ctx, k)
		}
	}
}

// leaveOthers removes the entries of a task with several keys on all of them but k, the busy one.
// This process may not know that a key has parked tasks, so leaveOthers does not check mayHave.
func (v *Delivery) leaveOthers(ctx context.Context, k lockKey) {
	if len(v.needs) == 1 || v.left == k { //planted:other-keys-left
		return
	}
	v.left = k
	for _, other := range v.needs {
		if other.lockKey != k {
			v.leaveKey(ctx, other)
		}
	}
}

// leaveKey removes the entry of the task on k. A task with several keys may have been woken for k,
// and does not get k because of another key. So the next tasks of k are woken now. Otherwise a
// waker finds them when it looks at k again.
func (v *Delivery) leaveKey(ctx context.Context, k need) {
	r, err := v.unpark(ctx, k.lockKey, backend.UnparkRequest{Remove: []string{v.entry}})
	if err != nil {
		return // the wakers find that the task is not parked on k
	}
	if len(v.needs) > 1 && r.Removed > 0 && r.Count > 0 {
		_, want := v.noteParked(k.lockKey, k.part)
		v.wake(k.lockKey, want, backend.UnparkReply{})
	}
	v.report(ctx, k.lockKey, r)
}

func (v *Delivery) report(ctx context.Context, k lockKey, r backend.UnparkReply) {
	if r.Removed > 0 {
		v.locks.hidden.Report(ctx, event.Unparked{
			Name: v.name, Kind: event.Kind(k.kind), Key: k.name, Parked: r.Age, Count: r.Count, Oldest: r.Oldest,
		})
	}
}
