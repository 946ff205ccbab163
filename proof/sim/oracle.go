package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const remembered = 40 // events of a key that are printed when it fails

// oracle judges the run. It knows only the results of the calls and the data on the server.
type oracle struct {
	t       *testing.T
	seed    uint64
	start   time.Time
	servers []*server
	clear   func(*keyState) bool // no fault has an effect on the key

	mu     sync.Mutex
	keys   map[string]*keyState
	jobs   []*job
	stats  Stats
	owners map[string]*node
	broken map[string]int // by invariant
	kinds  map[string]int // faults by name
}

// keyState is the state of a key. name is that of its hash.
type keyState struct {
	name    string
	token   int64
	holds   []*hold // that may be alive
	waiters map[*waiter]struct{}
	lost    time.Duration // when its data was lost last
	granted time.Duration // the last grant or the last release
	server  seen
	running int           // holds that have not been released, alive or not
	last    *hold         // granted last
	batch   int           // number of holds under one grant, up to last
	began   time.Duration // when the grant of the batch began
	dooms   []doom
	open    map[string]int // calls that have not released, by request id of their grant
	strays  map[*server]stray
	history []string
}

// hold lasts from the return of its acquire until ctx is canceled or its last run calls Release.
type hold struct {
	key      *keyState
	n        *node
	who      string
	token    int64
	ctx      context.Context //nolint:containedctx // the handler's
	fixed    bool            // not renewed
	runs     int
	at       time.Duration
	over     bool          // Release was called
	handed   bool          // the grant was handed off inside its process
	clean    time.Duration // when it was released with a valid lease
	shortest time.Duration // the shortest lease that it may have
	longest  time.Duration
	lostBy   time.Duration // set by a data loss: the end of the hold
	hold     string        // request id of its grant, if the server had it when the acquire returned
	checked  chan struct{} // closed when its cancellation has been judged
}

func (t *hold) alive() bool { return !t.over && t.ctx.Err() == nil }

// margin is the time that the server's lease must have left when ctx ends.
func (t *hold) margin() time.Duration { return t.shortest/10 + t.shortest/100 }

func newOracle(t *testing.T, seed uint64) *oracle {
	t.Helper()
	return &oracle{
		t: t, seed: seed, start: time.Now(),
		keys: map[string]*keyState{}, owners: map[string]*node{}, broken: map[string]int{}, kinds: map[string]int{},
	}
}

func exclusiveKey(i int) string { return fmt.Sprintf("k%d", i) }

func (o *oracle) now() time.Duration { return time.Since(o.start) }

// key returns the state of an exclusive key, or of a once key if its name begins with "job".
func (o *oracle) key(name string) *keyState {
	o.mu.Lock()
	defer o.mu.Unlock()
	space := "x"
	if strings.HasPrefix(name, "job") {
		space = "o"
	}
	name = "holdfast:2:" + space + ":{" + name + "}"
	k := o.keys[name]
	if k == nil {
		k = &keyState{name: name, waiters: map[*waiter]struct{}{}, open: map[string]int{}, strays: map[*server]stray{}}
		o.keys[name] = k
	}
	return k
}

func (o *oracle) noteLocked(k *keyState, format string, args ...any) {
	k.history = append(k.history, fmt.Sprintf("%9.3f ", o.now().Seconds())+fmt.Sprintf(format, args...))
	if len(k.history) > 4*remembered {
		k.history = append(k.history[:0], k.history[3*remembered:]...)
	}
}

func (o *oracle) note(k *keyState, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteLocked(k, format, args...)
}

// fail reports the first violation of each invariant, with the history of the key.
func (o *oracle) fail(invariant, key, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(invariant, o.keys[key], format, args...)
}

func (o *oracle) failLocked(invariant string, k *keyState, format string, args ...any) {
	o.stats.Violations++
	o.broken[invariant]++
	if o.broken[invariant] > 1 {
		return
	}
	name, history := "", ""
	if k != nil {
		name, history = k.name, "\n"+strings.Join(k.history[max(0, len(k.history)-remembered):], "\n")
	}
	o.t.Errorf("seed %d, %.3f s: %s %s: %s%s", o.seed, o.now().Seconds(), invariant, name, fmt.Sprintf(format, args...), history)
}

func (o *oracle) struck(name string) {
	o.count(func(s *Stats) { s.Faults++; o.kinds[name]++ })
}

func (o *oracle) count(change func(*Stats)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.stats)
}

// grant judges a lease that an acquire has returned and that is not nested. I1: no other hold is
// alive. I3: tokens grow. I5: it has the key on the server, with the margin that its ctx needs.
func (o *oracle) grant(k *keyState, wt *waiter, le *lockcore.Lease) *hold {
	who, t := wt.who, wt.terms
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Grants++
	ten := &hold{
		key: k, n: wt.n, who: who, token: le.Token(), ctx: le.Context(), runs: 1, at: o.now(), fixed: t.Fixed, shortest: t.Lease, longest: t.Lease,
		checked: make(chan struct{}),
	}
	o.noteLocked(k, "%s granted %d for %v, wait %v, fixed %v, maxHold %v, abandoned %v",
		who, le.Token(), t.Lease, t.Wait, t.Fixed, t.MaxHold, le.Abandoned())
	s, before := o.look(k.name, ten), k.last
	ten.handed = o.batchLocked(k, ten, s)
	if ten.handed { // an Extend of the earlier hold applies to this one too
		ten.longest = max(ten.longest, before.longest)
	}
	switch {
	case ten.handed && before.lostBy > 0, k.lost > 0 && ten.token <= micros(o.start.Add(k.lost)): // it was lost before the call returned
		ten.lostBy = k.lost + ten.longest
	case ten.token <= k.token:
		o.failLocked("I3", k, "%s got token %d after %d", who, ten.token, k.token)
	case ten.alive() && (!s.has(ten) || s.left < ten.margin()):
		o.failLocked("I5", k, "%s got %d, and the server has %v, want at least %v left", who, ten.token, s, ten.margin())
	}
	if s.has(ten) {
		ten.hold = s.hold
		o.owners[s.owner] = ten.n
	}
	k.open[ten.hold]++
	if ten.lostBy == 0 {
		k.token = max(k.token, ten.token)
	}
	k.granted = o.now()
	k.running++
	o.fifoLocked(k, wt)
	alive := k.holds[:0]
	for _, other := range k.holds {
		if !other.alive() {
			continue
		}
		alive = append(alive, other)
		if other.lostBy == 0 && ten.lostBy == 0 && ten.alive() {
			o.failLocked("I1", k, "%s got token %d while %s has %d", who, ten.token, other.who, other.token)
		}
	}
	k.holds = append(alive, ten)
	context.AfterFunc(ten.ctx, func() { o.canceled(ten) })
	return ten
}

// reenter counts a nested run.
func (o *oracle) reenter(ten *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Reentries++
	ten.runs++
}

// extend is called before an Extend. From then on the lease may have the other length.
func (o *oracle) extend(ten *hold, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ten.shortest, ten.longest = min(ten.shortest, d), max(ten.longest, d)
	if ten.lostBy > 0 {
		ten.lostBy = max(ten.lostBy, ten.key.lost+ten.longest)
	}
	o.noteLocked(ten.key, "%s extends %d by %v", ten.who, ten.token, d)
}

// release is called before Release of one run.
func (o *oracle) release(ten *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ten.runs--; ten.runs == 0 {
		ten.over = true
		ten.key.running--
		if k := ten.key; k.open[ten.hold] > 1 {
			k.open[ten.hold]--
		} else {
			delete(k.open, ten.hold)
		}
		if ten.ctx.Err() == nil {
			ten.clean = o.now()
		}
		ten.key.granted = o.now()
		o.noteLocked(ten.key, "%s releases %d", ten.who, ten.token)
	}
}

// canceled judges the moment at which a handler's ctx ended. I4: the lease has not ended on the
// server, and has at least the margin left. The worker waits for this before it releases.
func (o *oracle) canceled(ten *hold) {
	defer close(ten.checked)
	cause := context.Cause(ten.ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteLocked(ten.key, "%s canceled %d: %v", ten.who, ten.token, cause)
	switch {
	case ten.over:
		return
	case errors.Is(cause, lockcore.ErrReleased):
		o.failLocked("re-entry", ten.key, "%s: %d was released during a run", ten.who, ten.token)
		return
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded): // canceled by the caller
		return
	}
	o.stats.Losses++
	if ten.lostBy > 0 {
		return
	}
	s := o.look(ten.key.name, ten)
	if !s.has(ten) || s.left < ten.margin() {
		o.failLocked("I4", ten.key, "%s was canceled (%v) too late: the server has %v, want at least %v left of %d",
			ten.who, cause, s, ten.margin(), ten.token)
	}
	if good := ten.n.goodFor(); errors.Is(cause, lockcore.ErrLost) && !ten.fixed && good > ten.longest/2 {
		o.failLocked("loss", ten.key, "%s lost %d although nothing has failed for %v", ten.who, ten.token, good)
	}
}

// lose deletes the data of a key. Another call may then get the key, and the holder must notice
// within a lease.
func (w *world) lose(name string, queueToo bool) {
	o, k := w.oracle, w.key(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.servers[0].Redis.Del(k.name)
	if queueToo {
		o.servers[0].Redis.Del(k.name + ":q")
	}
	k.lost = o.now()
	k.token = min(k.token, micros(o.start.Add(k.lost))) // tokens ahead of the clock are lost too
	o.noteLocked(k, "DATA LOSS")
	for _, ten := range k.holds {
		if ten.lostBy == 0 {
			ten.lostBy = k.lost + ten.longest
		}
	}
}

func micros(t time.Time) int64 { return t.UnixMicro() }
