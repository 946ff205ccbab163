package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	start       = 1_700_000_000_000_000
	callTimeout = int64(backend.CallTimeout / time.Microsecond)
	rememberFor = int64(time.Minute / time.Microsecond) // a late duplicate may arrive for this long after it was sent
	endedIDs    = 16                                    // number of ended ids that a key remembers
)

// world is the state of a schedule.
type world struct {
	seed   uint64
	pcg    rand.PCG
	rnd    *rand.Rand
	p      protocol
	now    int64
	calm   bool // no command is lost or late
	lossy  bool // notifications get lost
	parks  bool // processes park and unpark
	shares bool // processes also request shares
	passes bool // processes hand holds to others

	tickets []ticket // that may be delivered once more

	kind      backend.Kind
	keep      int64
	abandoned int64 // how long an abandoned hold is kept
	procs     []*process
	late      []command // copies that may still arrive
	pending   []*pending
	heard     []string // notifications of the command that runs
	judge     judge
	used      int64  // the greatest token of a hold that began
	usedPhase string // of that hold, if it was a share
	made      int    // ids

	log func(string) // nil: no trace
}

// pending is a reply under way. r is nil if none will come.
type pending struct {
	p    *process // nil: an operator
	sent int64
	r    *reply
	on   func(*reply)
}

func newWorld(s Server, seed uint64, log func(string)) *world {
	w := &world{seed: seed, now: start, log: log}
	w.rnd = rand.New(&w.pcg)
	w.at(0)
	s.Flush()
	cluster := w.chance(20)
	w.kind = pick(w, []backend.Kind{backend.KindExclusive, backend.KindExclusive, backend.KindOnce})
	w.lossy = w.chance(40)
	w.parks, w.passes = seed%5 > 2, seed%5 == 2
	w.shares = seed%5 == 1 && w.kind == backend.KindExclusive
	w.abandoned = pick(w, []int64{120e6, 86400e6})
	if w.keep = backend.FreeTTL.Microseconds(); w.kind == backend.KindOnce {
		w.keep = pick(w, []int64{1e6, 45e6, 60e6, 150e6})
	}
	w.p = newProtocol(s, w.kind, cluster)
	w.judge = newJudge(w.kind == backend.KindOnce, cluster, w.listens)
	s.OnPublish(w.published)
	for i := range 2 + w.rnd.IntN(2) + int(count(w.shares)) {
		p := &process{w: w, n: i}
		p.restart()
		w.procs = append(w.procs, p)
	}
	w.trace("%v, %d processes, cluster %v, keep %v, abandoned for %v", w.kindName(), len(w.procs), cluster, micros(w.keep), micros(w.abandoned))
	return w
}

func (w *world) kindName() string {
	if w.kind == backend.KindOnce {
		return "once key"
	}
	return "exclusive key"
}

// at makes the random numbers of a step independent of the other steps, so that a trace can be
// minimized by leaving out steps.
func (w *world) at(step int) { w.pcg.Seed(w.seed, uint64(step)) }

func (w *world) chance(percent int) bool { return w.rnd.IntN(100) < percent }

func pick[T any](w *world, from []T) T { return from[w.rnd.IntN(len(from))] }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func (w *world) trace(format string, args ...any) {
	if w.log != nil {
		w.log(fmt.Sprintf("%12.6f ", float64(w.now-start)/1e6) + fmt.Sprintf(format, args...))
	}
}

// id returns a new id of 26 characters. kind tells ids apart in a trace.
func (w *world) id(kind byte) string {
	w.made++
	b := []byte("R0000000000000000000000000")
	b[0] = kind
	n := strconv.AppendInt(b[:19], int64(1_000_000+w.made), 10)
	return string(n)
}

// listens reports whether a process receives the notifications of a locker.
func (w *world) listens(locker string) bool {
	for _, p := range w.procs {
		if p.locker == locker {
			return p.listening
		}
	}
	return false
}

// published simulates PUBLISH. In a Cluster it counts the receivers of one node only, so a process
// that listens may not be counted.
func (w *world) published(channel, message string) int64 {
	w.heard = append(w.heard, message)
	locker := channel[len(channels):]
	if !w.listens(locker) {
		return 0
	}
	if w.lossy && w.chance(20) {
		w.trace("  the notification %s is lost", message)
	} else {
		for _, p := range w.procs {
			if p.locker == locker {
				p.notify(message)
			}
		}
	}
	return count(!w.p.cluster || w.chance(50))
}

// run runs a command on the server and judges the reply.
func (w *world) run(c *command, how string) *reply {
	var before backend.Status
	if c.op == clearKey {
		before = w.inspect()
	}
	w.heard = w.heard[:0]
	var r reply
	var err error
	if c.deal {
		var dealt bool
		if r, dealt, err = w.p.deal(w.now, c); err == nil && !dealt {
			w.trace("%sdeal of %v %s -> nothing", how, c.op, c)
			if c.late {
				return nil
			}
			own := *c
			own.deal, own.plain = false, false
			return w.run(&own, how)
		}
	} else {
		r, err = w.p.send(w.now, c)
	}
	if err != nil {
		fail("error", "%v of %s: %v", c.op, c.id, err)
	}
	if w.log != nil {
		w.trace("%s%v %s -> %s %v", how, c.op, c, r.text(c.op), w.heard)
	}
	if c.op == clearKey {
		heard := slices.Clone(w.heard)
		w.judge.cleared(w.now, c, &r, before, w.inspect(), heard)
		return &r
	}
	w.judge.observe(w.now, c, &r, w.heard)
	stale := !r.done && (c.op == release || c.op == complete || c.op == leave || c.op == rotate || c.op == releaseShare)
	if stale || w.rnd.IntN(8) == 0 {
		w.look()
	}
	return &r
}

// look judges the state of the key.
func (w *world) look() {
	w.judge.inspected(w.now, w.inspect())
	w.checkTTLs()
}

func (w *world) inspect() backend.Status {
	s, err := w.p.inspect(w.now)
	if err != nil {
		fail("error", "inspect: %v", err)
	}
	return s
}

// checkTTLs is check H: each key has a TTL.
func (w *world) checkTTLs() {
	for name, ttl := range w.p.server.Keys(w.now) {
		if ttl <= 0 {
			fail("H", "%s has no TTL", name)
		}
	}
}

// checkHolders is check A: at most one process holds the key, and the server knows it.
func (w *world) checkHolders() {
	w.judge.now = w.now
	for _, p := range w.procs {
		if p.holds() && !w.judge.has(p.hold.id) {
			fail("A", "P%d holds the key under %s, and the server has %+v and %+v", p.n, p.hold.id, w.judge.hold, w.judge.phase)
		}
	}
}

// begin is check B: the tokens of holds grow. The shares of a phase have one token.
func (w *world) begin(id string, token int64, phase string) {
	if token < w.used || token == w.used && (phase == "" || phase != w.usedPhase) {
		fail("B", "a hold of %s begins with token %d after %d", id, token, w.used)
	}
	w.used, w.usedPhase = token, phase
	w.judge.token = max(w.judge.token, token)
}
