package parking

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// lockKey is a key of a Locker.
type lockKey struct {
	locks *locker
	kind  backend.Kind
	name  string
}

// keyCounts are the workers of this process that wait for a key, and those that run under it.
type keyCounts struct{ waiting, holds int }

// part is what a key may use of the workers.
type part struct {
	quota  int // how many workers may wait for it, by the mean time of its tasks
	weight int // among the keys
}

// knownKey is a key that may have parked tasks, or had some.
type knownKey struct {
	seen time.Time // zero: it has none
	left time.Time // when it had none left
	part part

	// woken is how many tasks count as woken for the sake of the weight. Each hold that ends while no
	// task waits for the key adds one, up to the weight, and each woken task that finds the key busy
	// takes one away. So a key whose tasks do not wait in the queue costs at most one further
	// delivery for each run. In any order of the two the number stays between 1 and the weight. Each process has its own number, and a wake
	// counts the woken tasks of all processes.
	woken int
}

// parkedOn returns the start of the text of a task that is parked on k. wakeTask looks for it in the
// task's last error.
func (p *Pool) parkedOn(k lockKey) string {
	if k.kind == backend.KindOnce {
		return fmt.Sprintf("%s: parked on once key %q", p.Name, k.name)
	}
	return fmt.Sprintf("%s: parked on key %q", p.Name, k.name)
}

// noteParked notes that k may have parked tasks, and its part; zero keeps the known one. It returns
// how many tasks of k must count as woken while a task has k, and how many if none has it.
//
//   - held: as many as workers of this process can wait for k, including those that already wait.
//   - free: at least one, because no task would wake it otherwise.
//   - Both are at least knownKey.woken if that is more than one. So a key with a weight has as many
//     tasks in its queue as its weight, and the queue serves the tasks of all keys in turn.
func (p *Pool) noteParked(k lockKey, now part) (held, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.known[k]
	if len(p.known) >= maxKnown && old.seen.IsZero() {
		clear(p.known) // a key that is missing here is found again with its next hold
	}
	now = part{cmp.Or(now.quota, old.part.quota, p.most), cmp.Or(now.weight, old.part.weight, 1)}
	woken := min(max(old.woken, 1), now.weight)
	p.known[k] = knownKey{seen: time.Now(), part: now, woken: woken}
	room := p.most - p.waiting
	if c := p.keys[k]; c != nil {
		room += c.waiting
	}
	room = max(min(room, now.quota, p.quotaLocked(k)), 0)
	free = max(room, woken)
	if woken > 1 {
		return free, free
	}
	return room, free
}

// quotaLocked returns the quota of k among the other keys: all keys that are busy here and may have
// parked tasks have a quota in proportion to their weights, of at least one worker.
func (p *Pool) quotaLocked(k lockKey) int {
	weight := max(p.known[k].part.weight, 1)
	sum := weight
	for other := range p.keys {
		if known := p.known[other]; other != k && !known.seen.IsZero() {
			sum += known.part.weight
		}
	}
	return max(p.most*weight/sum, 1)
}

// noteNone notes that k had no parked tasks when the request was sent, unless a later event says that
// it may have some.
func (p *Pool) noteNone(k lockKey, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.known[k]; !old.seen.IsZero() && old.seen.Before(sent) {
		p.known[k] = knownKey{left: time.Now(), part: part{weight: old.part.weight}}
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

// busyHere reports whether a worker of this process runs under k or waits for it.
func (p *Pool) busyHere(k lockKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[k] != nil
}

// startWait counts a worker that waits for k. If there is no room for it, startWait returns false.
// must counts it without room.
func (p *Pool) startWait(k lockKey, quota int, must bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.countsLocked(k)
	if !must && (p.waiting >= p.most || c.waiting >= min(quota, p.quotaLocked(k))) {
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

// noteUnused notes that k has room and no task waits for it. So one more of its tasks may be in the
// queue.
func (p *Pool) noteUnused(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[k]; !known.seen.IsZero() { // else weight is not known
		known.woken = min(known.woken+1, known.part.weight)
		p.known[k] = known
	}
}

// noteBusy notes that a task which was parked on k before has found it busy again.
func (p *Pool) noteBusy(k lockKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[k]; !known.seen.IsZero() {
		known.woken = max(known.woken-1, 1)
		p.known[k] = known
	}
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
