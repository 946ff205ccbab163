package sim

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
)

// longest is the longest lease on several servers. A restarted one does not vote for that long.
const longest = 8 * time.Second

// server is a Redis in memory.
type server struct {
	*redistest.Memory
	w       *world
	index   int
	rdb     *redis.Client // has no faults
	ahead   atomic.Int64  // ns by which its clock is ahead
	down    atomic.Bool   // refuses new connections
	started atomic.Int64  // the last restart, in ns of the run; 0: none
}

func (w *world) newServer(i int) *server {
	s := &server{Memory: redistest.Bubble(w.t), w: w, index: i}
	if s.rdb = s.Client(w.t); w.c.Servers > 1 {
		s.setClock(w.rng("clock", i))
	}
	return s
}

// setClock moves the clock by up to half a second. The rates of all clocks are equal.
func (s *server) setClock(r rng) {
	ahead := r.between(-500*time.Millisecond, 500*time.Millisecond)
	s.ahead.Store(int64(ahead))
	s.Identify(func(id *pipe.Identity) { id.Ahead = ahead })
}

// clock returns the time of the server, and removes expired keys.
func (s *server) clock() time.Time {
	now := time.Now().Add(time.Duration(s.ahead.Load()))
	if s.w.c.Servers > 1 {
		s.Redis.SetTime(now)
	}
	s.Redis.DB(0)
	return now
}

// covered is the time until which no grant of s counts, because of a restart.
func (s *server) covered() time.Duration {
	if at := s.started.Load(); at > 0 {
		return time.Duration(at) + longest
	}
	return 0
}

// votes is the time from which the grants of s count. The server tells its age in whole seconds.
func (s *server) votes() time.Duration {
	switch {
	case s.down.Load():
		return s.w.now()
	case s.started.Load() > 0:
		return s.covered() + longest/100 + 2*time.Second
	}
	return 0
}

func (w *world) untilAllVote() {
	for _, s := range w.servers {
		time.Sleep(s.votes() - w.now())
	}
}

// restart kills the server and starts it again: with its data, with that of up to 2 s before, or
// empty. Its clock may then be another one.
func (s *server) restart(ctx context.Context, r rng) {
	kind := r.IntN(3)
	old := s.dump()
	if kind == 0 {
		sleep(ctx, r.between(0, 2*time.Second)) // what is written meanwhile is lost
	}
	s.stop(r.between(time.Millisecond, 3*time.Second))
	_ = s.rdb.ScriptFlush(s.w.root).Err()
	switch kind {
	case 0:
		s.load(old)
	case 1:
		s.load(nil)
	}
	s.setClock(r)
	s.Identify(func(id *pipe.Identity) { id.RunID, id.Started = rand.Text(), time.Now() })
	s.started.Store(int64(s.w.now()))
	s.down.Store(false)
	s.w.struck("restart " + []string{"with old data", "empty", "with data"}[kind])
	s.w.count(func(s *Stats) { s.Restarts++ })
}

// stop ends all connections of processes to s, and returns after d. It refuses new ones until down is
// false.
func (s *server) stop(d time.Duration) {
	s.w.struck("server stopped")
	s.down.Store(true)
	s.cut()
	time.Sleep(d)
	s.cut() // connections whose dial was under way
}

// cut ends all connections of processes.
func (s *server) cut() {
	for _, n := range s.w.nodes() {
		n.links[s.index].faults.Cut()
	}
}

// stored is a key with its data.
type stored struct {
	name, text string
	fields     []string
	scores     map[string]float64
	until      time.Time // its TTL
}

func (s *server) dump() (data []stored) {
	now := s.clock()
	for _, name := range s.Redis.Keys() {
		d := stored{name: name, until: now.Add(s.Redis.TTL(name))}
		switch t := s.Redis.Type(name); t {
		case "string":
			d.text, _ = s.Redis.Get(name)
		case "hash":
			names, _ := s.Redis.HKeys(name)
			for _, f := range names {
				d.fields = append(d.fields, f, s.Redis.HGet(name, f))
			}
		case "zset":
			d.scores, _ = s.Redis.SortedSet(name)
		default:
			panic(fmt.Sprintf("%s is a %s", name, t))
		}
		data = append(data, d)
	}
	return data
}

// load replaces all data. No process is connected.
func (s *server) load(data []stored) {
	s.w.mu.Lock() // so that the oracle does not see a part
	defer s.w.mu.Unlock()
	now := s.clock()
	s.Redis.FlushAll()
	for _, d := range data {
		if !d.until.After(now) {
			continue
		}
		switch {
		case d.fields != nil:
			s.Redis.HSet(d.name, d.fields...)
		case d.scores != nil:
			for member, score := range d.scores {
				_, _ = s.Redis.ZAdd(d.name, score, member)
			}
		default:
			_ = s.Redis.Set(d.name, d.text)
		}
		s.Redis.SetTTL(d.name, d.until.Sub(now))
	}
}

// look returns the state of a key. With several servers, ten has the key while no majority can grant
// it: the servers that have it, or grant nothing after a restart, are a majority. If ten is nil, it
// is the grant that a majority has.
func (o *oracle) look(name string, ten *hold) (s seen) {
	n := len(o.servers)
	if n == 1 {
		return o.servers[0].look(name)
	}
	all, count := make([]seen, n), map[string]int{}
	for i, srv := range o.servers {
		if all[i] = srv.look(name); all[i].state == "h" && all[i].left > 0 {
			count[all[i].hold]++
		}
	}
	var left []time.Duration
	for i, one := range all {
		bar := time.Duration(0)
		if ten != nil {
			bar = max(o.servers[i].covered()-o.now(), 0)
		}
		has := one.state == "h" && one.left > 0 && (ten == nil && count[one.hold] > n/2 || ten != nil && (one.hold == ten.hold || one.has(ten)))
		// After a hand-off some know an earlier token. A reply that came too late had a greater one.
		if has && one.token >= s.token && (ten == nil || one.token <= ten.token) {
			s.hold, s.owner, s.token, s.top = one.hold, one.owner, one.token, one.top
		}
		switch s.bar = s.bar || bar > 0; {
		case has:
			left = append(left, max(one.left, bar))
		case bar > 0:
			left = append(left, bar)
		}
	}
	if len(left) <= n/2 {
		return seen{}
	}
	slices.Sort(left)
	s.state, s.left = "h", left[len(left)-1-n/2]
	s.end = micros(time.Now().Add(s.left))
	switch {
	case s.hold == "":
		s.token, s.top = ten.token, ten.token
	case ten != nil && s.hold == ten.hold: // a server that granted it too late knows a smaller token
		s.top = max(s.top, ten.token)
	}
	return s
}

// stray is a grant on one server that no call uses.
type stray struct {
	hold  string
	since time.Duration
}

// strayLocked checks a part of I8: a withdrawal or a release soon reaches each server that replies.
func (w *world) strayLocked(k *keyState) {
	if len(w.servers) == 1 {
		return
	}
	// A waiting call repeats its request within 2 s. If it finds such a grant, it withdraws the request.
	// A lost reply takes a second, and tries are half a second apart.
	const soon = 4500 * time.Millisecond
	for _, s := range w.servers {
		one, before := s.look(k.name), k.strays[s]
		n := w.owners[one.owner]
		if one.state != "h" || one.left <= 0 || k.open[one.hold] > 0 || n == nil || n.goodFor() == 0 || s.votes() > w.now() {
			delete(k.strays, s)
			continue
		}
		if before.hold != one.hold {
			before = stray{one.hold, w.now()}
			k.strays[s] = before
		}
		if w.now()-before.since > soon {
			w.failLocked("I8", k, "a grant of process %d is left on server %d since %v: %v", n.index, s.index, before.since, one)
		}
	}
}

// minority lets a minority of the servers fail for a while.
func (w *world) minority(ctx context.Context, r rng) {
	w.hushed(r.chance(20))
	w.stormy(true)
	most := len(w.servers) / 2
	order := r.Perm(len(w.servers))
	if r.chance(60) { // the leases that are granted now are not on the servers that come back when others fail
		d := r.between(time.Second, 5*time.Second)
		var back sync.WaitGroup
		for _, i := range order[most : 2*most] {
			back.Go(func() {
				w.servers[i].stop(d)
				w.servers[i].down.Store(false)
			})
		}
		back.Wait()
	}
	var all sync.WaitGroup
	for _, i := range order[:1+r.IntN(most)] {
		all.Go(func() { w.ail(ctx, w.servers[i]) })
	}
	if len(w.dead) == 0 || r.chance(25) {
		w.kill(ctx, r, false)
	}
	all.Wait()
	w.stormy(false)
	sleep(ctx, r.between(0, 5*time.Second))
}

// ail lets the networks to a server fail, and often the server itself. It returns when the server
// votes.
func (w *world) ail(ctx context.Context, s *server) {
	r := w.rng("ail", s.index+int(w.now()/time.Millisecond)*10)
	ctx, cancel := context.WithTimeout(ctx, r.between(2*time.Second, 15*time.Second))
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { w.strikes(ctx, s) })
	if r.chance(60) {
		sleep(ctx, r.between(0, time.Second))
		s.restart(ctx, r)
	}
	all.Wait()
	time.Sleep(s.votes() - w.now())
}

// patience returns how long a waiter has seen no fault that excuses a delay, and how long it may then
// wait for a free key. If only a minority fails, nothing excuses a delay but leases of processes and
// servers that have failed.
func (w *world) patience(n *node, calm time.Duration) (since, bound time.Duration) {
	if w.c.Majority || n.killed.Load() {
		return calm, sluggish
	}
	return settled, longest + sluggish
}
