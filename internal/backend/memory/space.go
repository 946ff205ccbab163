package memory

import (
	"container/heap"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

const (
	// MinBytes is the least Options.MaxBytes.
	MinBytes = 1 << 10

	defaultBytes = 64 << 20
	entryBytes   = 600 // of a key without its texts: the data, and the entries in the map and in the heap
	waiterBytes  = 120 // of a waiter with two ids, or of the count of a process
	shareBytes   = 160 // of a share without its texts
	idBytes      = 48  // of an ended id
	parkedBytes  = 64  // of a parked entry without its text
	triggerBytes = 24  // of a trigger without its text
	duePerCall   = 8   // maximum number of keys whose expired data one command removes
)

// Space stores the keys of the Lockers of one process.
type Space struct {
	maxBytes int64
	clock    func() rules.Instant
	newID    func() string                 // returns an id for a revocation or a clear
	until    func(time.Time) time.Duration // time.Until, except in tests

	mu        sync.Mutex
	keys      map[string]*entry // by Key.Stored
	due       dueHeap
	bytes     int64
	listeners map[string][]*listener // by Locker
}

// entry is a key with data, waiters or parked entries.
type entry struct {
	key   rules.Key
	of    backend.Key
	bytes int64
	due   rules.Instant // when a part of the data expires
	index int           // in the heap
}

// NewSpace returns an empty Space. maxBytes bounds the estimated memory of keys, records, queues,
// triggers and parked entries. It must be at least 1 KiB; 0 means 64 MiB. Acquire, Complete, Interim, Park
// and Order return an error if they would exceed it.
func NewSpace(maxBytes int64) (*Space, error) {
	if maxBytes == 0 {
		maxBytes = defaultBytes
	}
	if maxBytes < MinBytes {
		return nil, fmt.Errorf("lockcore: MemoryOptions.MaxBytes is %d, must be at least %d, or 0 for %d", maxBytes, MinBytes, int64(defaultBytes))
	}
	return &Space{
		maxBytes: maxBytes, clock: clock(), newID: rand.Text, until: time.Until, keys: map[string]*entry{}, listeners: map[string][]*listener{},
	}, nil
}

// clock returns a clock that starts at the current time and never goes back. So tokens also grow
// across a restart of the process, unless the system clock was set back.
func clock() func() rules.Instant {
	start := time.Now()
	base := start.UnixMicro()
	return func() rules.Instant { return base + time.Since(start).Microseconds() }
}

// change applies a rule to a key. If grows is set, it discards a result that needs more memory than
// is available, and returns an error.
func (b *Backend) change(k *backend.Key, grows bool, rule func(rules.Key, rules.Env) (rules.Key, []rules.Notice)) error {
	s := b.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.isClosed() {
		return backend.ErrClosed
	}
	e := rules.Env{Now: s.clock(), Locker: b.o.Locker, Listeners: func(locker string) int { return len(s.listeners[locker]) }}
	s.expire(e.Now, duePerCall)
	old := s.keys[k.Stored[0]]
	if old == nil {
		old = &entry{of: *k}
	}
	data, notices := rule(old.key, e)
	if more := size(k, &data) - old.bytes; grows && more > 0 && s.bytes+more > s.maxBytes {
		if s.expire(e.Now, len(s.due)); s.bytes+more > s.maxBytes {
			return s.full(k, more)
		}
	}
	s.put(old, data, e.Now)
	s.notify(notices)
	return nil
}

func (s *Space) full(k *backend.Key, more int64) error {
	return fmt.Errorf("lockcore: MemoryOptions.MaxBytes is %d: keys, records and parked entries take %d bytes, and key %q needs %d more", s.maxBytes, s.bytes, k.Name, more)
}

// put stores the data of an entry, or removes the entry if it has none.
func (s *Space) put(e *entry, data rules.Key, now rules.Instant) {
	stored, known := e.of.Stored[0], e.bytes > 0
	s.bytes -= e.bytes
	if data.Gone() {
		if known {
			delete(s.keys, stored)
			heap.Remove(&s.due, e.index)
			e.bytes = 0
		}
		return
	}
	e.key, e.bytes, e.due = data, size(&e.of, &data), data.NextEnd(now)
	s.bytes += e.bytes
	if known {
		heap.Fix(&s.due, e.index)
	} else {
		s.keys[stored] = e
		heap.Push(&s.due, e)
	}
}

// expire removes expired data of at most limit keys.
func (s *Space) expire(now rules.Instant, limit int) {
	for ; limit > 0 && len(s.due) > 0 && s.due[0].due <= now; limit-- {
		e := s.due[0]
		data := e.key
		data.Expire(now)
		s.put(e, data, now)
	}
}

// size estimates the memory that a key takes.
func size(of *backend.Key, k *rules.Key) int64 {
	n := entryBytes + 3*len(of.Name) + len(k.Owner) + len(k.Locker) + len(k.Holder) + len(k.Fingerprint) + len(k.CompletedBy) + len(k.ParkingLocker) + len(k.PauseReason) + len(k.Flow.Restriction.Reason)
	for _, p := range k.Parked {
		n += parkedBytes + len(p.Text)
	}
	for _, t := range k.Triggers {
		n += triggerBytes + len(t.Entry)
	}
	for i := range k.Shares {
		n += shareBytes + len(k.Shares[i].Holder)
	}
	return int64(n + len(k.Record) + idBytes*len(k.Ended) + waiterBytes*(len(k.Queue)+len(k.Waits)))
}

// dueHeap orders the entries by due.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	e := x.(*entry) //nolint:errcheck,forcetypeassert // it has nothing else
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// listener is a running Listen. Its notifications wait here, because the function that receives
// them must not be called under a mutex.
type listener struct {
	waiting []backend.Notification // guarded by Space.mu
	signal  chan struct{}          // capacity 1
}

// notify adds notifications to their listeners. The caller holds mu.
func (s *Space) notify(notices []rules.Notice) {
	for _, n := range notices {
		for _, l := range s.listeners[n.Locker] {
			l.waiting = append(l.waiting, n.Notification)
			select {
			case l.signal <- struct{}{}:
			default: // the channel has a signal already
			}
		}
	}
}

// Listen implements backend.Backend. It returns when ctx ends or Close is called.
func (b *Backend) Listen(ctx context.Context, on func(backend.Notification)) {
	l := b.subscribe()
	if l == nil {
		return
	}
	defer b.unsubscribe(l)
	on(backend.Notification{Event: backend.EventSubscribed})
	for {
		select {
		case <-l.signal:
		case <-ctx.Done():
			return
		case <-b.closed:
			return
		}
		for _, n := range b.take(l) {
			on(n)
		}
	}
}

// subscribe registers a listener. It returns nil if the backend is closed.
func (b *Backend) subscribe() *listener {
	s := b.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.isClosed() {
		return nil
	}
	l := &listener{signal: make(chan struct{}, 1)}
	s.listeners[b.o.Locker] = append(s.listeners[b.o.Locker], l)
	return l
}

func (b *Backend) take(l *listener) []backend.Notification {
	b.space.mu.Lock()
	defer b.space.mu.Unlock()
	some := l.waiting
	l.waiting = nil
	return some
}

func (b *Backend) unsubscribe(l *listener) {
	s, locker := b.space, b.o.Locker
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[locker] = slices.DeleteFunc(s.listeners[locker], func(o *listener) bool { return o == l })
	if len(s.listeners[locker]) == 0 {
		delete(s.listeners, locker)
	}
}
