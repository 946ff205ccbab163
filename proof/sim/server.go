package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	glance   = 50 * time.Millisecond                      // between two reads of the server
	told     = 250*time.Millisecond + 50*time.Millisecond // the server knows the hold of a hand-off after this and a third of the lease: two renewals, a sixth each, may get no reply on dead connections
	prompt   = 250*time.Millisecond + 50*time.Millisecond
	sluggish = 2*time.Second + 500*time.Millisecond // the longest time between two requests of a waiter, and a little more
	settled  = 10 * time.Second                     // after this time a storm has no effect on connections
	// forgotten is the time after which the wait queue has no requests of dead processes. The
	// server reserves the key once for each of these requests.
	forgotten = 20 * time.Second
)

// seen is the state of a key on the server.
type seen struct {
	state string        // field s of the hash
	hold  string        // request id of the holder
	owner string        // its locker
	token int64         // of the last hold that was published
	top   int64         // the greatest token that the grant may use
	end   int64         // µs
	left  time.Duration // until end
	bar   bool          // a server that does not vote counts as one that has the key
	free  time.Duration // since when no hold has the key; it may be reserved
	idle  time.Duration // since when the key is held and no handler runs
}

func (s seen) String() string {
	return fmt.Sprintf("state %q, tokens %d to %d, %v left", s.state, s.token, s.top, s.left)
}

// has reports whether ten has the key. After a hand-off the server knows an earlier token of the
// grant, until the watchdog publishes the hold.
func (s seen) has(ten *hold) bool {
	return s.state == "h" && s.left > 0 && s.token <= ten.token && ten.token <= s.top
}

// again reports whether a late duplicate of ten's acquire has arrived after the loss of the data,
// so that ten has the key again.
func (s seen) again(ten *hold) bool { return s.state == "h" && s.left > 0 && s.hold == ten.hold }

func (s seen) live() bool { return (s.state == "h" || s.state == "r") && s.left > 0 }

// look reads a key without a command.
func (s *server) look(name string) seen {
	now := s.clock() // expires keys
	f := s.Fields(name)
	one := seen{state: f["s"], hold: f["h"], owner: f["o"]}
	one.token, _ = strconv.ParseInt(f["t"], 10, 64)
	one.end, _ = strconv.ParseInt(f["x"], 10, 64)
	one.top = one.token + batchMost - 1
	one.left = time.Duration(one.end-micros(now)) * time.Microsecond
	return one
}

// watch reads the server repeatedly until done.
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
	s := w.look(k.name, nil)
	w.keptLocked(k)
	w.doomedLocked(k, s)
	w.strayLocked(k)
	before := k.server
	// With a greater token this is a new grant, not a revived lease. The earlier grant of the
	// request ended or was lost, and its reply had not arrived. So the request was sent and granted
	// again.
	if s.state == "h" && before.state == "h" && s.hold == before.hold && s.token <= before.top && before.end <= micros(time.Now().Add(-glance)) && s.end > before.end {
		w.failLocked("I5", k, "an expired lease was revived: %v, before %v", s, before)
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
			w.failLocked("I6", k, "no handler runs since %.3f, and the server has %v", s.idle.Seconds(), s)
		}
	}
	k.server = s
	if s.free > 0 && s.state != "d" {
		w.takenLocked(k, s)
	}
}

// keptLocked checks I5. A hold whose ctx is not canceled has the key on the server, for no longer
// than it requested. The server soon has the hold of a hand-off. A hold whose data was lost ends
// within a lease, or has the key again.
func (w *world) keptLocked(k *keyState) {
	for _, ten := range k.holds {
		s := w.look(k.name, ten)
		switch {
		case !ten.alive():
		case ten.lostBy > 0:
			if w.now() > ten.lostBy+glance && !s.again(ten) {
				w.failLocked("I5", k, "%s is not canceled, and %d was lost with the data at %v", ten.who, ten.token, k.lost)
			}
		case !s.has(ten):
			w.failLocked("I5", k, "%s holds %d, and the server has %v", ten.who, ten.token, s)
		case s.token != ten.token && !ten.fixed && w.now()-ten.at > told+ten.longest/3 && ten.n.calmFor() > settled:
			w.failLocked("I5", k, "%s holds %d for %v, and it is not published: %v", ten.who, ten.token, w.now()-ten.at, s)
		case s.left > ten.longest && !s.bar:
			w.failLocked("I5", k, "%s holds %d for %v at most, and the server has %v", ten.who, ten.token, ten.longest, s)
		}
	}
}

// takenLocked checks I6: a free key with a waiter is taken.
func (w *world) takenLocked(k *keyState, s seen) {
	now := w.now()
	for wt := range k.waiters {
		calm := wt.n.calmFor()
		if wt.ctx.Err() != nil || wt.until <= now || calm == 0 {
			continue
		}
		bound := sluggish
		if w.clear(k) && s.state != "h" { // no notification reports that a hold has expired, and a waiter whose last request saw an earlier hold does not know when this one ends
			bound = prompt
		}
		if len(w.servers) > 1 {
			calm, bound = w.patience(wt.n, calm)
		}
		if calm > settled/2 && (bound == prompt || !s.live()) && now-max(s.free, wt.since, k.granted) > bound {
			w.failLocked("I6", k, "%s waits since %.3f, and the key is free since %.3f: longer than %v (calm for %v, hush %v, %v); queue %v",
				wt.who, wt.since.Seconds(), s.free.Seconds(), bound, calm, w.hush.Load(), s, w.queue(k.name))
			k.granted = now // report it once
		}
	}
}

// calmLong reports whether the effects of the last storm, data loss, kill or lost message on k are
// over.
func (w *world) calmLong(k *keyState) bool {
	now := w.now()
	return w.calmSince(now-forgotten) && !w.hushedLately() && now-k.lost > forgotten
}

func (o *oracle) queue(name string) []string {
	var all []string
	for _, s := range o.servers {
		s.clock()
		q, _ := s.Redis.ZMembers(name + ":q") // an error means that there is none
		all = append(all, q...)
	}
	return all
}

// expiring checks a part of I8: every key has a TTL.
func (w *world) expiring() {
	for _, s := range w.servers {
		for _, key := range s.Redis.Keys() {
			if strings.HasPrefix(key, "holdfast:") && s.Redis.TTL(key) <= 0 && s.Redis.Exists(key) {
				w.fail("I8", "", "%s has no TTL", key)
			}
		}
	}
}
