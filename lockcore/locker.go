package lockcore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/eventlog"
)

const (
	maxKeyLen  = 512
	maxPending = 4096 // completions that are retried at the same time; one more fails at once
)

// Locker acquires, renews and releases the leases of one process. Make one per process with [New]
// and share it. It is safe for concurrent use.
//
// # Wait queues
//
// The calls of one process (of one Locker) for a key wait in a local FIFO queue. Only the leader of
// that queue sends requests to Redis. Redis keeps a remote queue, of processes. A release reserves
// the key for the first process for half a second, and Redis notifies that process on its one
// subscription.
//
// Redis gives a grant: a lease and a block of 512 tokens. If other calls of the process wait when a
// holder releases, the next of them gets the key at once, without a command. This hand-off keeps
// the lease. The new hold has the next token, its own ctx and its own MaxHold.
//
// A batch of hand-offs ends after 512 holds, or with the hold that is running when the batch is 5 ms
// old. Then one script releases the key and requests it again. The next process gets the key, or
// this one if no other process waits. A process in the remote queue waits for about one batch of
// each process before it.
//
// A lease is handed off only if the key is exclusive, and the lease is neither lost, extended nor
// fixed. The next waiter must have the same Terms.Lease and the same Limit. Any other waiter gets
// its own grant in its turn. Redis learns of a handed-off hold after about 300 ms, if it lasts that
// long. Until then Inspect returns an earlier hold of the batch.
//
// When a key of Claim is done, all its waiters get the record at once.
//
// Terms.MaxWaiting bounds how many calls of a Locker wait for one key. If the holder is known, a
// call beyond that number is refused at once and costs no command. So one hot key cannot occupy a
// process.
//
// Inside a process the order of arrival is guaranteed for all terms: not even a call with NoWait
// overtakes a waiter. Between processes turns are guaranteed: a batch is bounded, and for half a
// second only the first process of the queue can get the reserved key.
//
// An order of arrival over several processes is not guaranteed:
//
//   - A process with a thousand waiters gets as many turns as a process with one, so its calls wait
//     longer.
//   - A process is not in the remote queue while it has no subscription: when it has just begun to
//     wait, or has lost its connection. It sends its request again at the end of the lease, at
//     least every 2 s, and as soon as it has subscribed. Until then other processes may overtake
//     it.
//   - If the holder died, was revoked or lost its lease, the first request to arrive gets the key. A
//     waiter that last polled under the previous holder may get it 2 s later.
//   - A call that is canceled, or whose Wait is over, leaves the queue and loses its place.
type Locker struct {
	id                string // a UUID, see ID; also in remote queues and in the name of its channel
	processID         string // describes this process, see holderText
	holderWithoutTask string // holderText of a call without a task and without a trace

	terms        Terms
	observer     event.Observer
	warnings     *eventlog.Log // nil if the Observer reports
	backend      backend.Backend
	watchdog     watchdog
	subscription subscription
	shards       [shards]shard // of the local queues

	// givens is a pool of channels for call.given. It is not global, because a channel belongs to
	// the bubble of testing/synctest that made it.
	givens sync.Pool

	base context.Context //nolint:containedctx // ends when Close gives up; parent of all background work
	stop context.CancelFunc

	closing      chan struct{} // closed by the first Close
	closeBackend sync.Once

	mu     sync.Mutex
	closed bool
	// grants has the grants by id, from the reply to the end of the last run. If a share has
	// several grants, only one of them is in grants.
	grants         map[string]*grant
	byAge          ageList                            // the grants whose leases have not ended, by age
	calls          int                                // calls under way
	idle           chan struct{}                      // made by Close; closed without grants and calls
	pending        int                                // completions that are retried
	parkedHandlers []func(backend.Key, access.Parked) // see handleParked
	// recentRevokes has the ids of the grants for which a notification of a revocation came within
	// revokePause. The value is true if another one followed.
	recentRevokes map[string]bool
	wg            sync.WaitGroup // background work; Add only under mu and only while not ended
	ended         bool           // wg accepts no more work

	panics atomic.Int64 // recovered panics of the Observer
}

// newLocker returns a Locker on the backend that open returns.
func newLocker(t Terms, o event.Observer, open func(backend.Options) (backend.Backend, error)) (*Locker, error) {
	o, warnings := observing(o)
	l := &Locker{
		id: uuid.NewString(), terms: t, observer: o, warnings: warnings, closing: make(chan struct{}), grants: map[string]*grant{},
	}
	common := backend.Options{Locker: l.id, Closing: l.closing, CleanupsFailed: l.cleanupsFailed, Server: l.serverChanged, Misconfigured: l.misconfigured}
	if o != nil {
		common.Grouped = l.grouped
	}
	b, err := open(common)
	if err != nil {
		return nil, err
	}
	l.backend = b
	l.terms.fill(&defaultTerms)
	l.base, l.stop = context.WithCancel(context.Background())
	for i := range l.shards {
		l.shards[i].l = l
	}
	l.watchdog.l, l.watchdog.zero, l.subscription.l = l, time.Now(), l
	l.watchdog.ctx, l.watchdog.cancel = context.WithCancel(l.base)
	l.processID = thisProcess()
	l.holderWithoutTask = l.processID + "\n"
	return l, nil
}

func (l *Locker) cleanupsFailed(n int, err error) {
	l.shielded(func() { l.report(l.base, event.CleanupFailed{N: n, Err: translate(err)}) })
}

func (l *Locker) serverChanged(name string, err error) {
	var e event.Event = event.ServerRecovered{Server: name}
	if err != nil {
		e = event.ServerFailed{Server: name, Err: translate(err)}
	}
	l.shielded(func() { l.report(l.base, e) })
}

func (l *Locker) grouped(calls int, waited time.Duration) {
	l.shielded(func() { l.report(l.base, event.GroupSent{Calls: calls, Waited: waited}) })
}

// String names the backend and l.
func (l *Locker) String() string { return "holdfast on " + l.backend.Name() + ", Locker " + l.id }

// ID returns the UUID of l. Holder.Locker has it, in every process.
func (l *Locker) ID() string { return l.id }

// Terms returns the terms of a call without terms: those of Options, completed by the defaults.
func (l *Locker) Terms() Terms { return l.terms }

// Acquire waits for the key and returns a lease on it. Release it in a defer. A key has 1 to
// 512 bytes.
//
// A call for a key that ctx already holds is nested: it sends no command, and uses only t.Wait. It
// enters at once, or when another nested call next to it has returned, see below.
//
// Every error satisfies errors.Is(err, ErrNotRun):
//
//   - *BusyError at the end of t.Wait, or at once with NoWait or beyond t.MaxWaiting
//   - ErrUnavailable; with Options.ReplicaAcks also ErrReplicaAcks
//   - ErrClosed
//   - ErrKey, or an error of t.Validate
//   - ErrRecord if the data in Redis is not that of an exclusive key
//   - ErrUpgrade if ctx holds a share of the key, and the call requests more than that share
//   - when ctx ends, [context.Cause], joined with a *BusyError or ErrUnavailable if one is known
//
// The lease is renewed until it is released. If a program drops a *Lease without Release, the key
// stays held until the process ends or the Locker is closed. So set Terms.MaxHold if you call
// Acquire directly.
//
// # Nested calls
//
// An Acquire whose ctx carries a hold of its key, by the same Locker, is nested: it is part of that
// hold and sends no command. A hold has a chain of open runs. The first run is the outermost, and
// each further run is nested in the one before.
//
//   - A call whose ctx belongs to the innermost open run enters at once.
//   - A call whose ctx belongs to an outer run waits until the run nested in that one has returned.
//     Such calls wait in FIFO order, for at most Terms.Wait. Then they fail with a [*BusyError]
//     whose field Nested is set.
//   - The ctx of a run that has returned behaves like the ctx of its closest open parent.
//   - Holds of other keys that ctx carries have no effect.
//
// Nested runs exclude each other. They do not exclude the code of the run around them. So a handler
// that starts goroutines with its ctx must wait for them, or acquire the key again for its own work
// meanwhile. Nested runs act as locks: two goroutines that acquire two keys in different orders
// wait for each other.
//
// The hold ends with its last run. If the first lease is released earlier, the runs inside it go
// on. From then on a call with the ctx of the first run is not nested.
func (l *Locker) Acquire(ctx context.Context, key string, t Terms) (*Lease, error) {
	return l.acquire(ctx, key, Limit{}, false, &t, nil)
}

// AcquireFixed is Acquire with a lease that is not renewed, for work that must not outlive its
// planned time. The lease lasts for t.Lease (30 s by default). Its ctx ends before the key is free:
//
//	                                after the grant            after Extend(ctx, d)
//	the ctx of the lease ends       t.Lease - 11 % - 5 ms      d - 11 % - 5 ms
//	the key is free for others at   t.Lease                    d
//	Release before that             the key is free at once    the key is free at once
//	Release after that              ErrLost                    ErrLost
//
// [Lease.Extend] never shortens the lease, so the later end counts. Inspect returns such a lease
// with Holding.Fixed. Because no renewal shows that its holder lives, ForceClear
// returns ErrAlive. The errors are those of Acquire.
func (l *Locker) AcquireFixed(ctx context.Context, key string, t Terms) (*Lease, error) {
	return l.acquire(ctx, key, Limit{}, true, &t, nil)
}

// AcquireShare waits for a share of the key and returns a lease on it. Other calls of AcquireShare
// can hold shares of the key at the same time, as n allows. A share is never held while a lease of
// [Locker.Acquire] holds the key. [Limit] has the rules of shares. Otherwise AcquireShare behaves as
// Acquire and returns its errors, or an error of n.Validate.
func (l *Locker) AcquireShare(ctx context.Context, key string, n Limit, t Terms) (*Lease, error) {
	return l.acquire(ctx, key, n, false, &t, n.Validate())
}

// acquire acquires a share of the key, or the key alone if n is zero. A fixed lease is not renewed.
// invalid is the error of n.
func (l *Locker) acquire(ctx context.Context, key string, n Limit, fixed bool, t *Terms, invalid error) (*Lease, error) {
	if err := errtext.Join(checkKey(key), invalid, t.check()); err != nil {
		return nil, errtext.Wrap(ErrNotRun, err)
	}
	var start time.Time
	if e := entryIn(ctx, l, event.KindExclusive, key); e != nil { //planted:nested-acquire
		le, since, err := l.reenter(ctx, e, n, t)
		if le != nil || err != nil {
			return le, err
		}
		start = since
	}
	c := &call{l: l, kind: event.KindExclusive, key: key, limit: n, fixed: fixed || access.Fixed(ctx), terms: *t, keep: freeTTL, start: start}
	c.terms.fill(&l.terms)
	h, _, err := c.run(ctx)
	switch {
	case err != nil:
		return nil, err
	case h == nil: // data of another program: an exclusive key has no record
		return nil, fmt.Errorf("%w: %q", ErrRecord, key)
	}
	return h.firstLease(), nil
}

// report passes e, which is an Event, to the Observer.
func (l *Locker) report(ctx context.Context, e any) {
	l.warnOfSetup(ctx, e)
	if l.observer != nil {
		l.observer.Event(ctx, e)
	}
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrKey)
	case len(key) > maxKeyLen:
		return fmt.Errorf("%w: %d bytes long, must be at most %d", ErrKey, len(key), maxKeyLen)
	}
	return nil
}

// holderText returns the text of a holder: host, PID, task and traceparent, one per line.
func (l *Locker) holderText(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	trace := ""
	if l.observer != nil {
		trace = oneLine(l.traceparent(ctx))
	}
	if task == "" && trace == "" {
		return l.holderWithoutTask
	}
	return l.processID + task + "\n" + trace
}

// storedHolder returns what the backend stores of a holder. unrenewed is set if it does not renew
// the lease, so that ForceClear does not take it for dead.
func (l *Locker) storedHolder(ctx context.Context, unrenewed bool) string {
	text := l.holderText(ctx)
	if unrenewed {
		text += backend.Unrenewed
	}
	return text
}

// startWorker counts a goroutine, so that join waits for it. It returns false, and the goroutine
// must not start, if the Locker has ended.
func (l *Locker) startWorker() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Add(1)
	return true
}

// addGrant registers a grant, so that Close waits for it. It returns false if the Locker was closed
// meanwhile: then the caller must give the grant up.
func (l *Locker) addGrant(g *grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if g.share != nil {
		g.share.grants = append(g.share.grants, g)
	}
	l.grants[g.id] = g
	l.addByAgeLocked(g)
	return true
}

func (l *Locker) removeGrant(g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s := g.share; {
	case s != nil:
		if i := slices.Index(s.grants, g); i >= 0 {
			s.grants = slices.Delete(s.grants, i, i+1)
			l.byAge.removeLocked(g)
		}
		if len(s.grants) == 0 {
			delete(l.grants, g.id)
		}
	case l.grants[g.id] == g:
		delete(l.grants, g.id)
		l.byAge.removeLocked(g)
	}
	l.signalIdleLocked()
}

// startCall counts a call until endCall. By then the grant of the call is registered or its request
// is withdrawn, so Close misses neither. It returns false after Close.
func (l *Locker) startCall() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls++
	return true
}

func (l *Locker) endCall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.signalIdleLocked()
}

// allLocked returns the grants with the id of g.
func (g *grant) allLocked() []*grant {
	if g.share == nil {
		return []*grant{g}
	}
	return g.share.grants
}

// signalIdleLocked signals Close when there are neither grants nor calls.
func (l *Locker) signalIdleLocked() {
	if l.idle == nil || len(l.grants) > 0 || l.calls > 0 {
		return
	}
	select {
	case <-l.idle:
	default:
		close(l.idle)
	}
}

// shielded runs call, which calls the Observer, and recovers and counts its panic. On a goroutine
// of the Locker a panic would end the process.
func (l *Locker) shielded(call func()) {
	defer func() {
		if v := recover(); v != nil {
			l.observerPanicked(v)
		}
	}()
	call()
}

// observerPanicked counts a panic. It logs the first one with its stack, and reports it as
// Misconfigured.
func (l *Locker) observerPanicked(v any) {
	if l.panics.Add(1) > 1 {
		return
	}
	problem := fmt.Sprintf("the Observer panicked: %v", v)
	slog.Error("lockcore: "+problem+"; later panics are only counted", "stack", string(debug.Stack()))
	l.misconfigured(problem)
}

// misconfigured reports a mistake in the setup.
func (l *Locker) misconfigured(problem string) {
	l.shielded(func() { l.report(context.WithoutCancel(l.base), event.Misconfigured{Problem: problem}) })
}

// traceparent returns the Observer's traceparent for ctx, or "" if the Observer panics.
func (l *Locker) traceparent(ctx context.Context) (tp string) {
	l.shielded(func() { tp = l.observer.Traceparent(ctx) })
	return tp
}
