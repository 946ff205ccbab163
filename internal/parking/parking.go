// Package parking lets the tasks of a queue wait for a busy key outside of their workers. The backend
// stores an entry for each parked task, and a release of the key makes the queue run the next one.
package parking

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// MaxMargin is the longest time between the end of a wait and the task's deadline.
const MaxMargin = time.Second

const (
	maxParked     = 10_000           // parked tasks of a key
	maxExtraDelay = 10 * time.Minute // of the delay for the tasks before, and of the delay for MinHold
	maxKnown      = 4096             // keys of parking.known
	parkTries     = 3                // further attempts of a delivery whose key is free when its task is parked
	maxLookups    = 8                // deliveries that look up their task at the same time
	lateWake      = 30 * time.Second // time after a task's completion in which a late wake may make asynq run it again
)

// Pool is the parking of one server. Its functions are called by the deliveries of the server,
// by the Lockers that they use, and by the goroutines of wakers.
//
// mu guards the counts and maps. No command is sent under it. A delivery that adds to a count also
// subtracts from it: endWait and endHold.
type Pool struct {
	inspector    *asynq.Inspector
	prefix       string        // of the entries of this deployment
	most         int           // workers that may wait, for all keys together
	check, delay time.Duration // asynq's TaskCheckInterval and DelayedTaskCheckInterval
	reported     sync.Once     // reports that check is too long
	badInspector sync.Once     // reports that the Inspector uses another Redis
	wakers       wakers
	lookups      chan struct{} // has an element for each lookup of a delivery

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

// knownKey is a key that may have parked tasks, or had some.
type knownKey struct {
	seen    time.Time // zero: it has none
	left    time.Time // when it had none left
	waiters int       // workers that may wait for it
}

// Options describe the workers of a server and their queue.
type Options struct {
	Inspector    *asynq.Inspector
	Deployment   string        // names the queue in the entries
	Workers      int           // of the server
	Check, Delay time.Duration // asynq's TaskCheckInterval and DelayedTaskCheckInterval
}

// New returns the parking of a server.
func New(o Options) *Pool {
	return &Pool{
		inspector: o.Inspector, prefix: url.PathEscape(o.Deployment) + "/", most: max(o.Workers/3, 1), check: o.Check, delay: o.Delay,
		lookups: make(chan struct{}, maxLookups), keys: map[lockKey]*keyCounts{}, known: map[lockKey]knownKey{}, free: map[lockKey]*freeKey{}, lockers: map[*lockcore.Locker]bool{},
	}
}

// entry returns the text that names a parked task in the backend.
func (p *Pool) entry(queue, id string) string {
	return p.prefix + url.PathEscape(queue) + "/" + url.PathEscape(id)
}

// task returns the task of an entry.
func (p *Pool) task(entry string) (queue, id string, ok bool) {
	rest, ok := strings.CutPrefix(entry, p.prefix)
	q, i, found := strings.Cut(rest, "/")
	queue, errQueue := url.PathUnescape(q)
	id, errID := url.PathUnescape(i)
	return queue, id, ok && found && errQueue == nil && errID == nil
}

// attach registers p with locks: p then receives each key that may have parked tasks.
func (p *Pool) attach(locks *lockcore.Locker) {
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
// number. It returns the number of workers of this server that can wait for k, including those that
// already wait.
func (p *Pool) learn(k lockKey, waiters int) (room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.known[k]
	if len(p.known) >= maxKnown && old.seen.IsZero() {
		clear(p.known) // a key that is missing here is found again with its next hold
	}
	waiters = cmp.Or(waiters, old.waiters, p.most)
	p.known[k] = knownKey{seen: time.Now(), waiters: waiters}
	room = p.most - p.waiting
	if c := p.keys[k]; c != nil {
		room += c.waiting
	}
	return max(min(room, waiters, p.shareLocked(k)), 0)
}

// shareLocked returns the part of most for k. The keys that are busy here and may have parked tasks
// have equal parts, of at least one worker.
func (p *Pool) shareLocked(k lockKey) int {
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
func (p *Pool) forget(k lockKey, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.known[k]; !old.seen.IsZero() && old.seen.Before(sent) {
		p.known[k] = knownKey{left: time.Now()}
	}
}

func (p *Pool) mayHave(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.known[k].seen.IsZero()
}

// mayBeLate reports whether a wake of a task of k may be on its way.
func (p *Pool) mayBeLate(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known[k]
	return !known.seen.IsZero() || time.Since(known.left) < lateWake
}

// busyHere reports whether a worker of this server runs under k or waits for it.
func (p *Pool) busyHere(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[k] != nil
}

// startWait counts a worker that waits for k. If there is no room for it, startWait returns false.
// must counts it without room.
func (p *Pool) startWait(k lockKey, waiters int, must bool) bool {
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

func (p *Pool) endWait(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k].waiting--
	p.waiting--
	p.dropLocked(k)
}

func (p *Pool) startHold(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countsLocked(k).holds++
	delete(p.free, k)
}

func (p *Pool) endHold(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k].holds--
	p.dropLocked(k)
}

func (p *Pool) countsLocked(k lockKey) *keyCounts {
	c := p.keys[k]
	if c == nil {
		c = new(keyCounts)
		p.keys[k] = c
	}
	return c
}

// dropLocked removes the counts of k if they are zero.
func (p *Pool) dropLocked(k lockKey) {
	if c := p.keys[k]; *c == (keyCounts{}) {
		delete(p.keys, k)
	}
}

// unpark sends req for k, and only wakes entries of this deployment.
func (p *Pool) unpark(ctx context.Context, k lockKey, req backend.UnparkRequest) (backend.UnparkReply, error) {
	b, sent := k.locks.Internal().Backend, time.Now()
	key := b.Key(k.kind, k.name)
	req.Key, req.Prefix = &key, p.prefix
	r, err := b.Unpark(ctx, req)
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

// Place is the place of a task among the parked tasks of its key.
type Place struct {
	kind   backend.Kind
	before int           // tasks that were parked earlier
	Delay  time.Duration // after which the task comes back if it is not woken
}

// Text returns the error of a task that b made wait at this place.
func (at *Place) Text(b *lockcore.BusyError) string {
	text := fmt.Sprintf("%s with %d before it", parkedOn(at.kind, b.Key), at.before)
	if b.Holder == (lockcore.Holder{}) {
		return fmt.Sprintf("%s; the key is kept for another %v", text, b.Remaining.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; held for %v by %v", text, b.HeldFor.Round(time.Millisecond), b.Holder)
}
