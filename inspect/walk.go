package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	idle      = time.Minute // after the last viewer the walk ends
	maxKnown  = 10_000      // keys that are kept
	maxLive   = 500         // keys that are inspected each second, the longest held first
	liveBatch = 100         // of them at the same time, so that the backend sends them together
	liveEvery = time.Second
	onceFor   = 10 * time.Minute // the time for which the walk includes the keys of Once after someone asked for it
)

// walker knows the keys that are not free. It works only while someone looks: viewer starts it, and it
// ends a minute after the last call of viewer, or when the Locker is closed.
//
// Two goroutines work. walk reads all keys, one walk after the other. live inspects the keys that are held
// longest, each second, and publishes a snapshot. Both write known under mu. live decides under mu that no
// one looks, and stops both, so a viewer either prevents that or starts them again.
type walker struct {
	locks   *lockcore.Locker
	closing <-chan struct{} // of locks
	pace    time.Duration   // negative: no walk

	mu      sync.Mutex
	running bool
	looked  time.Time // when a viewer was last here
	once    time.Time // until then keys of Once are walked too, for the viewers that ask for them
	known   map[named]*seen
	over    bool // the current walk has found more than maxKnown
	shot    snapshot
	ready   chan struct{} // closed with the first snapshot since the start
}

// seen is a key that the walk has found.
type seen struct {
	operator.Key
	walk int // that found it last
}

// snapshot is what all viewers see.
type snapshot struct {
	keys  []operator.Key
	asOf  time.Time
	walks int       // that are complete
	last  time.Time // end of the last complete walk
	took  time.Duration
	found int  // keys that the current walk has found
	full  bool // this walk or the one before has found more than maxKnown
	once  bool // the walk includes keys of Once
	err   error
}

func newWalker(l *lockcore.Locker, pace time.Duration) *walker {
	return &walker{locks: l, closing: access.Of(l).Closing, pace: pace, known: map[named]*seen{}}
}

// viewer returns the latest snapshot, and waits for the first one.
func (w *walker) viewer(ctx context.Context) snapshot {
	w.mu.Lock()
	w.looked = time.Now()
	if !w.running {
		w.running, w.ready = true, make(chan struct{})
		work, stop := context.WithCancel(context.Background())
		go w.live(work, stop, w.ready)
		if w.pace >= 0 {
			go w.walk(work)
		}
	}
	ready := w.ready
	w.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.shot
	s.once = time.Now().Before(w.once)
	return s
}

// withOnce lets the walk include the keys of Once for a time. Only viewers that ask for them see them.
func (w *walker) withOnce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.once = time.Now().Add(onceFor)
}

// walk reads all keys again and again, until ctx ends.
func (w *walker) walk(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		start := time.Now()
		w.mu.Lock()
		once := time.Now().Before(w.once)
		w.shot.found, w.over = 0, false
		w.mu.Unlock()
		err := w.walkOnce(ctx, n, event.KindExclusive)
		if err == nil && once {
			err = w.walkOnce(ctx, n, event.KindOnce)
		}
		w.mu.Lock()
		if ctx.Err() != nil { // the snapshot belongs to the next run
			w.mu.Unlock()
			return
		}
		if w.shot.err = err; err == nil {
			w.shot.full = w.over
			maps.DeleteFunc(w.known, func(_ named, s *seen) bool { return s.walk < n-1 }) // one that appeared meanwhile may be missing in one walk
			w.shot.walks, w.shot.last, w.shot.took = w.shot.walks+1, time.Now(), time.Since(start)
		}
		w.mu.Unlock()
		select { // a small keyspace must not be walked without a pause
		case <-time.After(max(liveEvery, w.pace)):
		case <-ctx.Done():
		}
	}
}

var errNotAsked = errors.New("no one asks for the keys of Once any more")

func (w *walker) walkOnce(ctx context.Context, n int, kind event.Kind) error {
	for e, err := range doctor.List(ctx, w.locks, doctor.ListOptions{Kind: kind, Free: true, Pace: w.pace}) {
		if err != nil {
			return err
		}
		if kind == event.KindOnce && e.State == lockcore.StateDone {
			continue // there may be millions, and nothing waits for them
		}
		if err := w.add(ctx, n, e); err != nil {
			return nil // the walk ends early
		}
	}
	return nil
}

func (w *walker) add(ctx context.Context, n int, e doctor.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil { // the keys belong to the next run
		return ctx.Err()
	}
	if e.Kind == event.KindOnce && time.Now().After(w.once) {
		return errNotAsked
	}
	name, k := named{e.Kind, e.Key}, operator.Key{Entry: e}
	if !interesting(&k) { // a key that was not released, for example: it must not take the place of one that is held
		delete(w.known, name)
		return nil
	}
	w.shot.found++
	if w.known[name] == nil && len(w.known) >= maxKnown {
		w.over, w.shot.full = true, true
		return nil
	}
	w.known[name] = &seen{k, n}
	return nil
}

// live inspects the keys that are held longest each second, and publishes them with the others. It ends
// a minute after the last viewer, or with the Locker.
func (w *walker) live(ctx context.Context, stop context.CancelFunc, ready chan struct{}) {
	pause := 50 * time.Millisecond // so that the first snapshot of a small keyspace has its keys
	for closing := false; ; pause = liveEvery {
		select {
		case <-time.After(pause):
		case <-w.closing:
			closing = true
		}
		err := w.refresh(ctx)
		w.mu.Lock()
		if w.publish(err); ready != nil {
			close(ready)
			ready = nil
		}
		if closing || time.Since(w.looked) > idle {
			stop()
			w.running, w.shot.walks = false, 0
			clear(w.known)
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// refresh inspects the keys that are held longest.
func (w *walker) refresh(ctx context.Context) error {
	w.mu.Lock()
	all := slices.SortedFunc(maps.Values(w.known), longestFirst)
	w.mu.Unlock()
	all = all[:min(len(all), maxLive)]
	for some := range slices.Chunk(all, liveBatch) {
		errs := make([]error, len(some))
		var group sync.WaitGroup
		for i, s := range some {
			group.Go(func() { errs[i] = w.look(ctx, s) })
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// look inspects a key. It alone changes s, and only once in a refresh.
func (w *walker) look(ctx context.Context, s *seen) error {
	k, err := operator.Inspect(ctx, w.locks, s.Kind, s.Key.Key, false)
	if errors.Is(err, lockcore.ErrRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := named{k.Kind, k.Key}
	if known := w.known[name]; known != nil {
		known.Key = k
	}
	if !interesting(&k) {
		delete(w.known, name)
	}
	return nil
}

func longestFirst(a, b *seen) int {
	return cmp.Or(cmp.Compare(b.HeldFor, a.HeldFor), cmp.Compare(a.Key.Key, b.Key.Key))
}

// interesting reports whether a list shows the key.
func interesting(k *operator.Key) bool {
	return k.State != lockcore.StateFree && k.State != lockcore.StateDone || k.PauseLeft > 0 || k.Queue > 0 || k.Parked > 0 || k.Restriction.For > 0 || k.NextTurnIn > 0
}

// publish makes a snapshot. mu must be held.
func (w *walker) publish(err error) {
	s := &w.shot
	s.keys = s.keys[:0:0]
	for _, k := range w.known {
		if interesting(&k.Key) {
			s.keys = append(s.keys, k.Key)
		}
	}
	s.asOf = time.Now()
	if err != nil {
		s.err = err
	} else if w.pace < 0 {
		s.err = nil
	}
}
