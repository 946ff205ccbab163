package lockcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	defaultPrefix = "holdfast"
	defaultKeep   = 24 * time.Hour
	maxKeep       = 366 * 24 * time.Hour
	// MaxFingerprint is the longest fingerprint of a Claim, in bytes.
	MaxFingerprint = 64

	maxPending = 4096 // completions retried in the background; one more fails at once
)

// Options of a Locker. The zero value is ready to use.
type Options struct {
	// Prefix of every key in Redis. Default "holdfast". At most 64 printable ASCII characters
	// without spaces and braces. Lockers exclude each other only under the same prefix.
	Prefix string
	// Terms are the defaults for the Terms of each call.
	Terms Terms
	// Observer receives the events. Default: none, at no cost.
	Observer Observer
	// NoBatching sends every command on its own connection. By default six or more commands at the
	// same time travel together, except for 3 s after a reply was missing. That uses go-redis's
	// AutoPipeline, which is experimental and does not work in a testing/synctest bubble. No effect
	// with a failover client or a wrapper.
	NoBatching bool
	// ReplicaAcks makes a grant count only when replicas have it. Default: it counts when the
	// primary has it. It is refused with a wrapper, which may be a cluster.
	ReplicaAcks ReplicaAcks
}

// Validate reports every problem of o at once.
func (o Options) Validate() error {
	return errtext.Join(checkPrefix(o.Prefix), o.Terms.Validate(), o.ReplicaAcks.validate())
}

// Locker is one process's end of the protocol: it acquires, renews and releases leases. Make one
// per process with [New] and share it; it is safe for concurrent use.
type Locker struct {
	id                string // of this process in remote queues and of its channel
	processID         string // describes this process, see holderText
	holderWithoutTask string // the same without a task

	wakePrefix string // of the channels to which Lockers subscribe
	prefix     string
	terms      Terms
	observer   Observer
	conn       *conn
	watchdog   watchdog
	wake       wake
	cleanups   cleanups
	shards     [shards]shard // of the local queues

	base context.Context //nolint:containedctx // ends when Close gives up; parent of whatever runs in the background
	stop context.CancelFunc

	closing chan struct{} // closed by the first Close
	once    sync.Once     // closes conn

	mu          sync.Mutex
	closed      bool
	grants      map[string]*grant // by id, from the reply to the end of the last run
	aged        aged              // the same grants by age
	calls       int               // calls under way
	empty       chan struct{}     // made by Close; closed when there are neither grants nor calls
	pending     int               // completions that are retried
	revokeHints map[string]bool   // by id: a revocation message came within revokePause; true: another one came
	wg          sync.WaitGroup    // background work; Add only under mu and only while not ended
	ended       bool              // wg accepts no more work

	panics atomic.Int64 // recovered panics of the Observer
}

// New returns a Locker on rdb: a *redis.Client, a *redis.ClusterClient or any other
// redis.UniversalClient. From the first two it makes its own clients, so that user commands that
// block the pool never delay a renewal: three pools (four with ReplicaAcks) of up to max(PoolSize,
// 16) connections (in a Cluster: per node) and a subscription, opened as needed. [Locker.Close]
// closes those, never rdb. A failover client (Sentinel) or a wrapper is used as it is: do not share
// it with other code. A *redis.Ring is refused.
func New(rdb redis.UniversalClient, o Options) (*Locker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c, err := newConn(rdb, !o.NoBatching)
	if err != nil {
		return nil, err
	}
	if err := c.waitForReplicas(o.ReplicaAcks); err != nil {
		c.close()
		return nil, err
	}
	l := &Locker{
		id: rand.Text(), processID: thisProcess(), prefix: cmp.Or(o.Prefix, defaultPrefix), terms: o.Terms,
		observer: o.Observer, conn: c, closing: make(chan struct{}), grants: map[string]*grant{},
	}
	l.terms.fill(&defaultTerms)
	l.base, l.stop = context.WithCancel(context.Background())
	l.watchdog.l, l.wake.l, l.cleanups.l = l, l, l
	l.watchdog.ctx, l.watchdog.cancel = context.WithCancel(l.base)
	l.holderWithoutTask, l.wakePrefix = l.processID+"\n", l.prefix+layout+"wake:"
	return l, nil
}

// Terms returns the terms of a call without terms: those of Options, completed by the defaults.
func (l *Locker) Terms() Terms { return l.terms }

// Acquire waits for the key and returns a lease on it; release it in a defer. A call for a key that
// ctx already holds is nested: it needs no round trip, and only t.Wait counts. It enters at once,
// or when another nested call beside it has returned, see the package documentation. A key has 1 to
// 512 bytes.
//
// It returns an error that satisfies errors.Is(err, ErrNotRun): a *BusyError at the end of t.Wait,
// ErrUnavailable (with Options.ReplicaAcks a *ReplicaAcksError), ErrClosed, ErrKey, ErrRecord if
// the data in Redis is not that of an exclusive key, an error of t.Validate, or what is known
// joined with [context.Cause] when ctx ends.
//
// The lease is renewed until it is released. A *Lease that is dropped without Release keeps its key
// for as long as the process lives. Set Terms.MaxHold for leases that are acquired by hand, or use
// package guard, which always releases.
func (l *Locker) Acquire(ctx context.Context, key string, t Terms) (*Lease, error) {
	if err := errtext.Join(checkKey(key), t.check()); err != nil {
		return nil, errtext.Wrap(ErrNotRun, err)
	}
	var start time.Time
	if e := entryIn(ctx, l, KindExclusive, key); e != nil { //planted:nested-acquire
		le, since, err := l.reenter(ctx, e, t.Wait)
		if le != nil || err != nil {
			return le, err
		}
		start = since
	}
	c := &call{l: l, kind: KindExclusive, key: key, terms: t, keep: freeTTL, mode: "exclusive", start: start}
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

// Claim describes a call of [Locker.Claim].
type Claim struct {
	Terms Terms
	// Keep is how long the number of runs and an abandoned run (at least 24 h) are remembered.
	// Complete sets how long a record is kept. Default 24 h. 1 s to 366 days.
	Keep time.Duration
	// Fingerprint of the payload, opaque, at most 64 bytes. Empty: not compared.
	Fingerprint []byte
	// AtMostOnce refuses an abandoned key, for as long as it is remembered, instead of taking it over.
	AtMostOnce bool
	// Check, if set, returns an error for a stored record that cannot be used. Such a record is
	// refused with ErrRecord and counted.
	Check func(record []byte) error
}

func (c *Claim) validate() error {
	var errs []error
	if err := c.Terms.check(); err != nil {
		errs = append(errs, err)
	}
	if c.Keep != 0 && (c.Keep < time.Second || c.Keep > maxKeep) {
		errs = append(errs, fmt.Errorf("lockcore: Claim.Keep is %v, must be between 1s and %v", c.Keep, maxKeep))
	}
	if len(c.Fingerprint) > MaxFingerprint {
		errs = append(errs, fmt.Errorf("lockcore: Claim.Fingerprint is %d bytes long, must be at most %d", len(c.Fingerprint), MaxFingerprint))
	}
	return errtext.Join(errs...)
}

// Record is the record of a done key: opaque bytes. Package idempotency defines their format.
type Record struct {
	Data    []byte
	Attempt int // number of the run that was recorded, from 1
}

// Claim is Acquire in the namespace of Once, where a key can also be done. Exactly one of its results is not nil: a
// lease, to be ended by Complete, Release or Abandon; a record; or an error as those of Acquire, also an
// *AbandonedError, a *MismatchError, ErrRecord or ErrNested.
func (l *Locker) Claim(ctx context.Context, key string, c Claim) (*Lease, *Record, error) {
	if err := errtext.Join(checkKey(key), c.validate()); err != nil {
		return nil, nil, errtext.Wrap(ErrNotRun, err)
	}
	if e := entryIn(ctx, l, KindOnce, key); e != nil && e.holds() {
		return nil, nil, fmt.Errorf("%w: %q", ErrNested, key)
	}
	once := &call{
		l: l, kind: KindOnce, key: key, terms: c.Terms, keep: cmp.Or(c.Keep, defaultKeep), mode: "least",
		fingerprint: string(c.Fingerprint), check: c.Check,
	}
	once.terms.fill(&l.terms)
	if c.AtMostOnce {
		once.mode = "most"
	}
	h, rec, err := once.run(ctx)
	if h == nil {
		return nil, rec, err
	}
	return h.firstLease(), nil, nil
}

// Report passes an event of a package above to the Observer.
func (l *Locker) Report(ctx context.Context, e Event) {
	if l.observer != nil {
		l.observer.Event(ctx, e)
	}
}

// startWorker counts a goroutine that join waits for, unless the Locker has ended.
func (l *Locker) startWorker() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Add(1)
	return true
}

// addGrant registers a grant. It returns false if the Locker was closed meanwhile.
func (l *Locker) addGrant(g *grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.grants[g.id] = g
	l.ageLocked(g)
	return true
}

func (l *Locker) removeGrant(g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grants[g.id] == g {
		delete(l.grants, g.id)
		l.aged.removeLocked(g)
	}
	l.emptyLocked()
}

// startCall counts a call, until it has become a hold or its request was withdrawn.
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
	l.emptyLocked()
}

// emptyLocked signals Close when there are neither grants nor calls.
func (l *Locker) emptyLocked() {
	if l.empty == nil || len(l.grants) > 0 || l.calls > 0 {
		return
	}
	select {
	case <-l.empty:
	default:
		close(l.empty)
	}
}
