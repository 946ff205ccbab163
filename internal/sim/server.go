package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	glance   = 50 * time.Millisecond // between two looks at the server
	prompt   = 250*time.Millisecond + 50*time.Millisecond
	sluggish = 2*time.Second + 500*time.Millisecond // the wait cap, and a little
	settled  = 10 * time.Second                     // after which a storm has left no trace in a connection
	// forgotten is when the line is also free of those who could not leave it: each cost a claim window.
	forgotten = 20 * time.Second
)

// seen is what the server says of a key.
type seen struct {
	state string // "", h, r, d
	token int64
	end   int64         // µs
	left  time.Duration // until end
	free  time.Duration // since when nobody has it, reserved or not
}

func (s seen) String() string {
	return fmt.Sprintf("state %q, token %d, %v left", s.state, s.token, s.left)
}

func (s seen) live() bool { return (s.state == "h" || s.state == "r") && s.left > 0 }

// look reads a hash without a command.
func (o *oracle) look(name string) seen {
	db := o.redis.DB(0) // which lets keys run out
	s := seen{state: db.HGet(name, "s")}
	s.token, _ = strconv.ParseInt(db.HGet(name, "t"), 10, 64)
	s.end, _ = strconv.ParseInt(db.HGet(name, "x"), 10, 64)
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
			k.tenures = slices.DeleteFunc(k.tenures, func(ten *tenure) bool { return !ten.alive() })
			if len(k.tenures) > 0 || len(k.waiters) > 0 || w.now()-k.granted < 20*time.Second {
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
	before := k.server
	if s.state == "h" && before.state == "h" && s.token == before.token && before.end <= micros(time.Now().Add(-glance)) && s.end > before.end {
		w.failLocked("I5", k, "a lease that had run out was revived: %v", s)
	}
	switch {
	case s.state == "h" && s.left > 0:
		s.free = 0
	case before.free == 0 || before.token != s.token:
		s.free = w.now()
	default:
		s.free = before.free
	}
	k.server = s
	if s.free > 0 && s.state != "d" {
		w.wakeLocked(k, s)
	}
}

// keptLocked checks I5: who is not canceled has the key on the server, for no longer than it asked for; whose key was lost
// with the data knows within a lease.
func (w *world) keptLocked(k *keyState, s seen) {
	for _, ten := range k.tenures {
		switch {
		case !ten.alive():
		case ten.lostBy > 0:
			if w.now() > ten.lostBy+glance {
				w.failLocked("I5", k, "%s still believes in %d, which was lost with the data at %v", ten.who, ten.token, k.lost)
			}
		case s.state != "h" || s.token != ten.token || s.left <= 0:
			w.failLocked("I5", k, "%s holds %d and the server says %v", ten.who, ten.token, s)
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
		if calm > forgotten && !w.hush.Load() && now-time.Duration(w.heard.Load()) > sluggish && now-k.lost > forgotten {
			bound = prompt
		}
		if calm > settled/2 && (bound == prompt || !s.live()) && now-max(s.free, wt.since, k.granted) > bound {
			w.failLocked("I6", k, "%s waits since %.3f, the key is free since %.3f, %v is too long (calm for %v, hush %v, %v); queue %v",
				wt.who, wt.since.Seconds(), s.free.Seconds(), bound, calm, w.hush.Load(), s, w.queue(k.name))
			k.granted = now // once
		}
	}
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
