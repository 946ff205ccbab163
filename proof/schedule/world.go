package schedule

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
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
	skew   int64 // of the server's clock
	calm   bool  // no command is lost or late
	lossy  bool  // notifications get lost
	parks  bool  // processes park and unpark
	shares bool  // processes also request shares
	passes bool  // processes hand holds to others
	rates  bool  // processes also send calls with a rate
	jumps  bool  // the server's clock is set back

	tickets []ticket // that may be delivered once more

	kind       backend.Kind
	keep       int64
	abandoned  int64 // how long an abandoned hold is kept
	procs      []*process
	late       []command // copies that may still arrive
	pending    []*pending
	heard      []rules.Notice // notifications of the command that runs, which a process may receive
	judge      judge
	invariants invariants
	rated      rated
	commands   int // that the server has run
	finished   int // of them, those that may have added an ended id
	made       int // ids

	log func(string) // nil: no trace
}

// pending is a reply under way. r is nil if none will come.
type pending struct {
	p    *process // nil: an operator
	sent int64
	r    *reply
	on   func(*reply)
}

func newWorld(s Server, seed uint64, of parts) *world {
	w := &world{seed: seed, now: start, log: of.log}
	w.rnd = rand.New(&w.pcg)
	w.at(0)
	s.Flush()
	cluster := w.chance(20)
	w.kind = pick(w, []backend.Kind{backend.KindExclusive, backend.KindExclusive, backend.KindOnce})
	w.lossy = w.chance(40)
	w.parks, w.passes = seed%5 > 2, seed%5 == 2
	w.shares = seed%5 == 1 && w.kind == backend.KindExclusive
	w.rates = seed%5 == 0 && w.kind == backend.KindExclusive
	w.abandoned = pick(w, []int64{120e6, 86400e6})
	if w.keep = backend.FreeTTL.Microseconds(); w.kind == backend.KindOnce {
		w.keep = pick(w, []int64{1e6, 45e6, 60e6, 150e6})
	}
	w.p = newProtocol(s, w.kind, cluster)
	w.judge = judge{off: of.unruled, receivers: w.receivers}
	w.invariants = invariants{ended: map[string]bool{}, shares: map[string]bool{}}
	s.OnPublish(w.published)
	for i := range 2 + w.rnd.IntN(2) + int(count(w.shares)) {
		p := &process{w: w, n: i}
		p.restart()
		w.procs = append(w.procs, p)
	}
	w.invariants.procs = w.procs
	if w.rates {
		w.jumps = w.chance(25)
		w.rated = rated{w: w, rate: pick(w, rates), ends: map[string]int64{}, queue: map[string]*queued{}}
		w.trace("the rate is %d in %v, burst %d", w.rated.rate.N, w.rated.rate.Per, w.rated.rate.Burst)
	}
	w.trace("%v, %d processes, cluster %v, keep %v, abandoned for %v", w.kindName(), len(w.procs), cluster, micros(w.keep), micros(w.abandoned))
	return w
}

// server returns the time of the server's clock.
func (w *world) server() int64 { return w.now + w.skew }

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

// receivers returns the number of subscribers that the scripts count for a locker. In a Cluster they
// do not rely on the number, because PUBLISH counts the receivers of one node only.
func (w *world) receivers(locker string) int { return int(count(w.p.cluster || w.listens(locker))) }

// published simulates PUBLISH. In a Cluster a process that listens may not be counted.
func (w *world) published(channel, message string) int64 {
	locker := channel[len(channels):]
	n, ok := wire.DecodeNotification(message)
	if !ok {
		fail("notifications", "the notification %q", message)
	}
	if w.receivers(locker) > 0 {
		w.heard = append(w.heard, rules.Notice{Locker: locker, Notification: n})
	}
	if !w.listens(locker) {
		return 0
	}
	if w.lossy && w.chance(20) {
		w.trace("  the notification %s is lost", message)
	} else {
		for _, p := range w.procs {
			if p.locker == locker {
				p.notify(&n)
			}
		}
	}
	return count(!w.p.cluster || w.chance(50))
}

// run runs a command on the server and judges the reply.
func (w *world) run(c *command, how string) *reply {
	w.heard = w.heard[:0]
	r := c.request(&w.p.key)
	var value any
	var err error
	if c.many {
		var done bool
		value, done, err = w.p.grantMany(w.server(), c, r)
		if err == nil {
			w.judge.grantedMany(w.server(), w.kind, c, done)
		}
		if err == nil && !done {
			w.trace("%sgrant_many of %v %s -> nothing", how, c.op, c)
			if c.late {
				return nil
			}
			own := *c
			own.many, own.plain = false, false
			return w.run(&own, how)
		}
	} else {
		value, err = w.p.send(w.server(), c, r)
	}
	if err != nil {
		fail("error", "%v of %s: %v", c.op, c.id, err)
	}
	if w.log != nil {
		w.trace("%s%v %s -> %s %v", how, c.op, c, text(c.op, value), w.heard)
	}
	w.commands++
	if adopted, _ := value.(backend.AdoptReply); c.repeated || c.op == revoke || c.op == clearKey || adopted.Verdict == backend.VerdictKept {
		w.finished++
	}
	for i := range w.heard {
		if n := &w.heard[i]; n.Event == backend.EventTurn {
			w.invariants.turn(n.Request)
			w.rated.turn(n.Request)
		}
	}
	w.invariants.replied(w.now, c, value)
	w.judge.compare(w.server(), c, r, value, w.heard)
	if w.rates {
		w.rated.ran(w.now, c, value)
	}
	if w.judge.kept(w.server(), w.p.key.Stored[0], w.p.server.Keys(w.server())); w.rnd.IntN(8) == 0 {
		w.look()
	}
	return &reply{value: value}
}

// look judges the state of the key, and returns it.
func (w *world) look() backend.Status {
	s, err := w.p.inspect(w.server())
	if err != nil {
		fail("error", "inspect: %v", err)
	}
	w.judge.inspected(w.server(), w.kind, s)
	w.judge.kept(w.server(), w.p.key.Stored[0], w.p.server.Keys(w.server()))
	return s
}

// checkHolders judges the processes that hold the key by their own clocks.
func (w *world) checkHolders() {
	if w.invariants.off {
		return
	}
	w.invariants.holders()
	for _, p := range w.procs {
		if p.holds() && !w.judge.off && !w.judge.has(w.now, p.hold.id) {
			fail("holder", "P%d holds the key under %s, and the server has %+v", p.n, p.hold.id, w.judge.key)
		}
	}
}
