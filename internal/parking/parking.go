// Package parking lets the tasks of a queue wait for a busy key outside of their workers. The
// backend stores an entry for each parked task, and a release of the key makes the queue run the
// next one.
//
// A middleware makes a [Pool] for the workers of a process, and a [Delivery] for each task that
// they get:
//
//	v := pool.Delivery(parking.Request{Locks: locks, Keys: []parking.Key{{Name: "account:42", Weight: 1}}, Task: id, Mean: &mean})
//	ran, at, err := v.Run(ctx, terms, func(terms lockcore.Terms) (ran bool, err error) {
//		err = guard.Exclusive(ctx, locks, "account:42", terms, func(ctx context.Context) error {
//			ran = true
//			defer v.Begin(ctx)()
//			return work(ctx)
//		})
//		return ran, err
//	})
//
// If at is not nil, the task is parked: the middleware stores at.Text in the queue and lets the task
// come back after at.Delay, in case it is not woken.
package parking

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Queue is the queue of the tasks. Its methods are called from several goroutines, and may block for
// seconds. Only the wakers, the goroutines that wake tasks, wait for them that long.
type Queue interface {
	// Lookup returns what the queue knows of a task.
	Lookup(task string) Task
	// Run makes a delayed task run now. It returns false if the queue does not have the task. The
	// task may have changed since Lookup. If it has completed meanwhile, it may run again, see
	// Delivery.RanAlready.
	Run(task string) (found bool)
}

// Task is a task in its queue.
type Task struct {
	State     State
	LastError string    // of its last delivery; contains Place.Text if that delivery parked it
	Again     time.Time // Delayed: when it comes back by itself
	Kept      bool      // the queue keeps it when it has completed, so that a late Run runs it again
	Completed time.Time // when it completed last; zero: never
	Deadline  time.Time // of all its deliveries; zero: none
	Queue     string    // the names of the tasks that wait in line with it begin with this text
	Problem   string    // if it is not empty, it is reported once as event.Misconfigured
	Refused   string    // if it is not empty, the queue cannot delay the task, and why
}

// State is the state of a task in its queue.
type State uint8

// The states.
const (
	Unknown State = iota // the queue does not reply
	Gone                 // there is no such task
	Pending              // it runs when a worker is free
	Running              // a worker has it
	Delayed              // it comes back at Task.Again, as a parked task does
	Other                // for example completed
)

// Options are the options of [New]. All but Deployment are required.
type Options struct {
	Queue      Queue
	Name       string        // of the middleware; the texts of parked tasks begin with it
	Deployment string        // names the queue, if several queues share keys
	Workers    int           // of this process
	Check      time.Duration // between two looks of an idle worker at the queue
	Late       time.Duration // by which a task that comes back by itself may be late
}

const (
	maxParked     = 10_000           // parked tasks of a key
	maxExtraDelay = 10 * time.Minute // of the delay for the tasks before, and of the delay for MinHold
	maxKnown      = 4096             // keys of Pool.known
	parkTries     = 3                // further tries of a delivery whose key is free when its task is parked
	maxLookups    = 8                // deliveries that look up their task at the same time
	lateWake      = 30 * time.Second // time after a task's completion in which a late wake may make the queue run it again
)

// Pool is the parking of the workers of one process. Its functions are called by their deliveries,
// by the Lockers that these use, and by the goroutines of wakers.
//
// mu guards the counts and maps. No command is sent under it, and no method of the queue is called.
// It is locked before the mutex of a Locker (attach), never after. A delivery that adds to a count
// also subtracts from it: endWait and endHold.
type Pool struct {
	Options

	prefix  string    // of the entries of this deployment
	most    int       // workers that may wait, for all keys together
	problem sync.Once // reports Task.Problem
	unable  sync.Once // reports that the backend cannot park
	wakers  wakers
	lookups chan struct{} // has an element for each lookup of a delivery

	mu      sync.Mutex
	waiting int
	keys    map[lockKey]*keyCounts // keys with a waiting worker or a hold here
	known   map[lockKey]knownKey   // keys that may have parked tasks
	free    map[lockKey]*freeKey   // keys that are checked again
	lockers map[*lockcore.Locker]*locker
}

// locker is a Locker whose keys have parked tasks.
type locker struct {
	*lockcore.Locker

	hidden access.Locker
	ctx    context.Context //nolint:containedctx // ends with the Locker; of the commands of wakers
}

// New returns the parking of the workers of a process. At most a third of them, and at least one,
// wait for busy keys. The other tasks of these keys are parked.
func New(o Options) *Pool {
	return &Pool{
		Options: o, prefix: url.PathEscape(o.Deployment) + "/", most: max(o.Workers/3, 1), lookups: make(chan struct{}, maxLookups),
		keys: map[lockKey]*keyCounts{}, known: map[lockKey]knownKey{}, free: map[lockKey]*freeKey{}, lockers: map[*lockcore.Locker]*locker{},
	}
}

// attach registers p with locks, if it is not: p then receives each key that may have parked tasks.
func (p *Pool) attach(locks *lockcore.Locker) *locker {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lockers[locks]
	if l == nil {
		l = &locker{Locker: locks, hidden: access.Of(locks)}
		// The Locker calls the function without a mutex. A call that comes before ctx is set waits
		// for mu.
		l.ctx = l.hidden.HandleParked(func(key backend.Key, state access.Parked) { p.onParked(lockKey{l, key.Kind, key.Name}, state) })
		p.lockers[locks] = l
	}
	return l
}

// onParked is called when a reply or a notification says that k may have parked tasks.
func (p *Pool) onParked(k lockKey, state access.Parked) {
	if state == access.ParkedFree {
		p.noteUnused(k)
	}
	_, free := p.noteParked(k, part{})
	switch state {
	case access.ParkedHeld: // the delivery that has the key wakes tasks, see Begin
	case access.ParkedFree:
		p.wakeFree(k, free)
	case access.ParkedDone:
		p.wakeFree(k, wakeDone)
	}
}

// unpark sends req for k, and only wakes entries of this deployment.
func (p *Pool) unpark(ctx context.Context, k lockKey, req backend.UnparkRequest) (backend.UnparkReply, error) {
	b, sent := k.locks.hidden.Backend, time.Now()
	key := b.Key(k.kind, k.name)
	req.Key, req.Prefix = &key, p.prefix
	r, err := b.Unpark(ctx, req)
	if err == nil && r.Count == 0 {
		p.noteNone(k, sent)
	}
	return r, err
}
