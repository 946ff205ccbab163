package asynqmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Parking makes tasks wait for a busy key outside of the workers, see [Configure].
type Parking struct {
	// Inspector finds and wakes parked tasks. It must use the Redis of the asynq server, and must
	// stay open until the Lockers are closed. Required.
	Inspector *asynq.Inspector
	// Deployment names the Redis of the asynq server. If asynq servers with different Redis servers
	// share keys, give each Redis its own name. At most 128 bytes. Default: "".
	Deployment string
}

// Validate reports every problem of p at once.
func (p Parking) Validate() error {
	var errs []error
	if p.Inspector == nil {
		errs = append(errs, errors.New("asynqmw: Parking.Inspector is nil, must be an Inspector of the server's Redis"))
	}
	if len(p.Deployment) > maxDeployment {
		errs = append(errs, fmt.Errorf("asynqmw: Parking.Deployment is %d bytes long, must be at most %d", len(p.Deployment), maxDeployment))
	}
	return errtext.Join(errs...)
}

const (
	maxDeployment = 128
	maxParked     = 10_000           // parked tasks of a key
	maxExtraDelay = 10 * time.Minute // of the delay for the tasks before, and of the delay for MinHold
	maxKnown      = 4096             // keys of parking.known
	parkTries     = 3                // further attempts of a delivery whose key is free when its task is parked
)

// parking is the parking of one server. Its functions are called by the deliveries of the server,
// by the Lockers that they use, and by the goroutines of wakers.
//
// mu guards the counts and maps. No command is sent under it. A delivery that adds to a count also
// subtracts from it: endWait and endHold.
type parking struct {
	inspector    *asynq.Inspector
	prefix       string        // of the entries of this deployment
	most         int           // workers that may wait, for all keys together
	check, delay time.Duration // asynq's TaskCheckInterval and DelayedTaskCheckInterval
	reported     sync.Once     // reports that check is too long
	badInspector sync.Once     // reports that the Inspector uses another Redis
	wakers       wakers

	mu      sync.Mutex
	waiting int
	keys    map[lockKey]*keyCounts // keys with a waiting worker or a hold here
	known   map[lockKey]knownKey   // keys that may have parked tasks
	free    map[lockKey]*freeKey   // keys that are looked at again
	lockers map[*lockcore.Locker]bool
}

// lockKey is a key of a Locker.
type lockKey struct {
	locks *lockcore.Locker
	kind  backend.Kind
	name  string
}

// keyCounts are the workers of this server that wait for a key, and those that run under it.
type keyCounts struct{ waiting, holds int }

// knownKey is a key that may have parked tasks.
type knownKey struct {
	seen    time.Time
	waiters int // workers that may wait for it
}

func newParking(cfg asynq.Config, o Parking) *parking {
	if err := o.Validate(); err != nil {
		panic(errtext.Prefix("asynqmw: Configure", err).Error())
	}
	workers := cfg.Concurrency
	if workers < 1 {
		workers = runtime.NumCPU() // as asynq does
	}
	return &parking{
		inspector: o.Inspector, prefix: url.PathEscape(o.Deployment) + "/", most: max(workers/3, 1),
		check: cmp.Or(max(cfg.TaskCheckInterval, 0), time.Second), delay: cmp.Or(max(cfg.DelayedTaskCheckInterval, 0), 5*time.Second),
		keys: map[lockKey]*keyCounts{}, known: map[lockKey]knownKey{}, free: map[lockKey]*freeKey{}, lockers: map[*lockcore.Locker]bool{},
	}
}

// entry returns the text that names a parked task in the backend.
func (p *parking) entry(queue, id string) string {
	return p.prefix + url.PathEscape(queue) + "/" + url.PathEscape(id)
}

// task returns the task of an entry.
func (p *parking) task(entry string) (queue, id string, ok bool) {
	rest, ok := strings.CutPrefix(entry, p.prefix)
	q, i, found := strings.Cut(rest, "/")
	queue, errQueue := url.PathUnescape(q)
	id, errID := url.PathUnescape(i)
	return queue, id, ok && found && errQueue == nil && errID == nil
}

// attach registers p with locks: p then receives each key that may have parked tasks.
func (p *parking) attach(locks *lockcore.Locker) {
	p.mu.Lock()
	attached := p.lockers[locks]
	p.lockers[locks] = true
	p.mu.Unlock()
	if attached {
		return
	}
	locks.Internal().HandleParked(func(key backend.Key, state access.Parked) {
		k := lockKey{locks, key.Kind, key.Name}
		room := p.learn(k, 0)
		switch state {
		case access.ParkedHeld: // the delivery that has the key wakes tasks, see begin
		case access.ParkedFree:
			p.wakeFree(k, max(room, 1))
		case access.ParkedDone:
			p.wakeFree(k, wakeDone)
		}
	})
}

// learn notes that k may have parked tasks, and how many workers may wait for it; 0 keeps the known
// number. It returns how many workers of this server can wait for k, including those that do.
func (p *parking) learn(k lockKey, waiters int) (room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.known[k]
	if len(p.known) >= maxKnown && old.seen.IsZero() {
		clear(p.known) // a key that is missing here is found again with its next hold
	}
	waiters = cmp.Or(waiters, old.waiters, p.most)
	p.known[k] = knownKey{time.Now(), waiters}
	room = p.most - p.waiting
	if c := p.keys[k]; c != nil {
		room += c.waiting
	}
	return max(min(room, waiters, p.shareLocked(k)), 0)
}

// shareLocked returns the part of most for k. The keys that are busy here and may have parked tasks
// have equal parts, of at least one worker.
func (p *parking) shareLocked(k lockKey) int {
	hot := 1
	for other := range p.keys {
		if other != k && !p.known[other].seen.IsZero() {
			hot++
		}
	}
	return max(p.most/hot, 1)
}

// forget notes that k had no parked tasks when the request was sent, unless a later event says that
// it may have some.
func (p *parking) forget(k lockKey, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[k].seen.Before(sent) {
		delete(p.known, k)
	}
}

func (p *parking) mayHave(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.known[k].seen.IsZero()
}

// busyHere reports whether a worker of this server runs under k or waits for it.
func (p *parking) busyHere(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[k] != nil
}

// startWait counts a worker that waits for k. If there is no room for it, startWait returns false.
// must counts it without room.
func (p *parking) startWait(k lockKey, waiters int, must bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.countsLocked(k)
	if !must && (p.waiting >= p.most || c.waiting >= min(waiters, p.shareLocked(k))) {
		p.dropLocked(k)
		return false
	}
	c.waiting++
	p.waiting++
	return true
}

func (p *parking) endWait(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k].waiting--
	p.waiting--
	p.dropLocked(k)
}

func (p *parking) startHold(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countsLocked(k).holds++
	delete(p.free, k)
}

func (p *parking) endHold(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k].holds--
	p.dropLocked(k)
}

func (p *parking) countsLocked(k lockKey) *keyCounts {
	c := p.keys[k]
	if c == nil {
		c = new(keyCounts)
		p.keys[k] = c
	}
	return c
}

// dropLocked removes the counts of k if they are zero.
func (p *parking) dropLocked(k lockKey) {
	if c := p.keys[k]; *c == (keyCounts{}) {
		delete(p.keys, k)
	}
}

// unpark removes entries of k, and marks others until want entries are woken.
func (p *parking) unpark(ctx context.Context, k lockKey, remove []string, want int, fresh time.Duration) (backend.UnparkReply, error) {
	b, sent := k.locks.Internal().Backend, time.Now()
	key := b.Key(k.kind, k.name)
	r, err := b.Unpark(ctx, backend.UnparkRequest{Key: &key, Remove: remove, Woken: want, Prefix: p.prefix, Fresh: fresh})
	if err == nil && r.Count == 0 {
		p.forget(k, sent)
	}
	return r, err
}

// parkedOn returns the start of the error of a task that is parked on a key. wakeTask looks for it
// in the task's last error.
func parkedOn(kind backend.Kind, key string) string {
	if kind == backend.KindOnce {
		return fmt.Sprintf("asynqmw: parked on once key %q", key)
	}
	return fmt.Sprintf("asynqmw: parked on key %q", key)
}

// place is the place of a task among the parked tasks of its key.
type place struct {
	kind   backend.Kind
	before int           // tasks that were parked earlier
	delay  time.Duration // after which the task comes back if it is not woken
}

func (c *conflict) parkedText() string {
	b, _ := errors.AsType[*lockcore.BusyError](c.err)
	text := fmt.Sprintf("%s with %d before it", parkedOn(c.place.kind, b.Key), c.place.before)
	if b.Holder == (lockcore.Holder{}) {
		return fmt.Sprintf("%s; the key is kept for another %v", text, b.Remaining.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; held for %v by %v", text, b.HeldFor.Round(time.Millisecond), b.Holder)
}

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
