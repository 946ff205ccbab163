package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	glance   = 50 * time.Millisecond                      // between two looks at the server
	told     = 250*time.Millisecond + 50*time.Millisecond // and a third of the lease: then the server knows the hold after a hand-off. Two renewals may get no reply on dead connections, each for a sixth
	prompt   = 250*time.Millisecond + 50*time.Millisecond
	sluggish = 2*time.Second + 500*time.Millisecond // the wait cap, and a little
	settled  = 10 * time.Second                     // after which a storm has left no trace in a connection
	// forgotten is when the line is also free of those who could not leave it: each cost a claim window.
	forgotten = 20 * time.Second
)

// seen is what the server says of a key.
type seen struct {
	state string        // "", h, r, d
	hold  string        // whose
	owner string        // its locker
	token int64         // of the hold that it has been told of
	top   int64         // greatest that may be out while it is held
	end   int64         // µs
	left  time.Duration // until end
	free  time.Duration // since when nobody has it, reserved or not
	idle  time.Duration // since when it is held and nobody runs
}

func (s seen) String() string {
	return fmt.Sprintf("state %q, tokens %d to %d, %v left", s.state, s.token, s.top, s.left)
}

// has says whether the key is ten's. After a hand-off the server knows an earlier token of the grant, until the watchdog tells it.
func (s seen) has(ten *hold) bool {
	return s.state == "h" && s.left > 0 && s.token <= ten.token && ten.token <= s.top
}

// again says that a late duplicate of ten's acquire has come after its data was lost, and so holds the key for it.
func (s seen) again(ten *hold) bool { return s.state == "h" && s.left > 0 && s.hold == ten.hold }

func (s seen) live() bool { return (s.state == "h" || s.state == "r") && s.left > 0 }

// look reads a key without a command.
func (o *oracle) look(name string) seen {
	o.redis.DB(0) // which lets keys run out
	f := redistest.On(o.redis).Fields(name)
	s := seen{state: f["s"], hold: f["h"], owner: f["o"]}
	s.token, _ = strconv.ParseInt(f["t"], 10, 64)
	s.end, _ = strconv.ParseInt(f["x"], 10, 64)
	s.top = s.token + batchMost - 1
	s.left = time.Duration(s.end-micros(time.Now())) * time.Microsecond
	return s
}

// watch looks at the server again and again until done.
func (w *world) watch(done <-chan struct{}) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-done:
			return
		}
		w.mu.Lock()
		for _, k := range w.keys {
			k.holds = slices.DeleteFunc(k.holds, func(ten *hold) bool { return !ten.alive() })
			if len(k.holds) > 0 || len(k.waiters) > 0 || w.now()-k.granted < 20*time.Second {
				w.inspectLocked(k)
			} else {
				k.server = seen{}
			}
		}
		w.mu.Unlock()
		if n%100 == 0 {
			w.expiring()
		}
	}
}

func (w *world) inspectLocked(k *keyState) {
	s := w.look(k.name)
	w.keptLocked(k, s)
	w.doomedLocked(k, s)
	before := k.server
	// A greater token: it was another's or lost in between, and its ask, which never heard of the grant before, has been granted anew.
	if s.state == "h" && before.state == "h" && s.hold == before.hold && s.token <= before.top && before.end <= micros(time.Now().Add(-glance)) && s.end > before.end {
		w.failLocked("I5", k, "a lease that had run out was revived: %v, before %v", s, before)
	}
	switch {
	case s.state == "h" && s.left > 0:
		s.free = 0
	case before.free == 0 || before.token != s.token:
		s.free = w.now()
	default:
		s.free = before.free
	}
	if s.live() && s.state == "h" && k.running == 0 && s.hold == before.hold {
		if s.idle = before.idle; s.idle == 0 {
			s.idle = w.now()
		}
		if w.now()-s.idle > prompt && w.clear(k) {
			w.failLocked("I6", k, "nobody has it since %.3f, and the server says %v", s.idle.Seconds(), s)
		}
	}
	k.server = s
	if s.free > 0 && s.state != "d" {
		w.wakeLocked(k, s)
	}
}

// keptLocked checks I5: who is not canceled has the key on the server, for no longer than it asked for, and the server hears soon to
// whom it was handed off; whose key was lost with the data knows within a lease, or has it again.
func (w *world) keptLocked(k *keyState, s seen) {
	for _, ten := range k.holds {
		switch {
		case !ten.alive():
		case ten.lostBy > 0:
			if w.now() > ten.lostBy+glance && !s.again(ten) {
				w.failLocked("I5", k, "%s still believes in %d, which was lost with the data at %v", ten.who, ten.token, k.lost)
			}
		case !s.has(ten):
			w.failLocked("I5", k, "%s holds %d and the server says %v", ten.who, ten.token, s)
		case s.token != ten.token && !ten.fixed && w.now()-ten.at > told+ten.longest/3 && ten.n.calmFor() > settled:
			w.failLocked("I5", k, "%s holds %d for %v, and the server has not been told: %v", ten.who, ten.token, w.now()-ten.at, s)
		case s.left > ten.longest:
			w.failLocked("I5", k, "%s holds %d for %v at most and the server says %v", ten.who, ten.token, ten.longest, s)
		}
	}
}

// wakeLocked checks I6: a key that nobody has, and that somebody waits for, is taken.
func (w *world) wakeLocked(k *keyState, s seen) {
	now := w.now()
	for wt := range k.waiters {
		calm := wt.n.calmFor()
		if wt.ctx.Err() != nil || wt.until <= now || calm == 0 {
			continue
		}
		bound := sluggish
		if w.clear(k) && s.state != "h" { // who asked last under an earlier hold learns only by the clock that this one ran out
			bound = prompt
		}
		if calm > settled/2 && (bound == prompt || !s.live()) && now-max(s.free, wt.since, k.granted) > bound {
			w.failLocked("I6", k, "%s waits since %.3f, the key is free since %.3f, %v is too long (calm for %v, hush %v, %v); queue %v",
				wt.who, wt.since.Seconds(), s.free.Seconds(), bound, calm, w.hush.Load(), s, w.queue(k.name))
			k.granted = now // once
		}
	}
}

// calmLong says that what the last storm, loss, kill or lost message has done to k is over.
func (w *world) calmLong(k *keyState) bool {
	now := w.now()
	return w.calmSince(now-forgotten) && !w.hushedLately() && now-k.lost > forgotten
}

func (o *oracle) queue(name string) []string {
	q, err := o.redis.ZMembers(name + ":q")
	if err != nil {
		return nil
	}
	return q
}

// expiring checks a part of I8: every key has a TTL.
func (w *world) expiring() {
	for _, key := range w.server.Redis.Keys() {
		if strings.HasPrefix(key, "holdfast:") && w.server.Redis.TTL(key) <= 0 && w.server.Redis.Exists(key) {
			w.fail("I8", "", "%s has no TTL", key)
		}
	}
}
