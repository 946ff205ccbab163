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

// knownKey is a key that may have parked tasks, or had some.
type knownKey struct {
	seen  time.Time // zero: it has none
	left  time.Time // when it had none left
	quota int       // how many workers may wait for it, by the mean time of its tasks
}

// parkedOn returns the start of the text of a task that is parked on k. wakeTask looks for it in the
// task's last error.
func (p *Pool) parkedOn(k lockKey) string {
	if k.kind == backend.KindOnce {
		return fmt.Sprintf("%s: parked on once key %q", p.Name, k.name)
	}
	return fmt.Sprintf("%s: parked on key %q", p.Name, k.name)
}

// noteParked notes that k may have parked tasks, and its quota; 0 keeps the known quota. It returns
// the number of workers of this process that can wait for k, including those that already wait.
func (p *Pool) noteParked(k lockKey, quota int) (room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.known[k]
	if len(p.known) >= maxKnown && old.seen.IsZero() {
		clear(p.known) // a key that is missing here is found again with its next hold
	}
	quota = cmp.Or(quota, old.quota, p.most)
	p.known[k] = knownKey{seen: time.Now(), quota: quota}
	room = p.most - p.waiting
	if c := p.keys[k]; c != nil {
		room += c.waiting
	}
	return max(min(room, quota, p.quotaLocked(k)), 0)
}

// quotaLocked returns the quota of k among the other keys: all keys that are busy here and may have
// parked tasks have the same quota, of at least one worker.
func (p *Pool) quotaLocked(k lockKey) int {
	hot := 1
	for other := range p.keys {
		if other != k && !p.known[other].seen.IsZero() {
			hot++
		}
	}
	return max(p.most/hot, 1)
}

// noteNone notes that k had no parked tasks when the request was sent, unless a later event says that
// it may have some.
func (p *Pool) noteNone(k lockKey, sent time.Time) {
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
