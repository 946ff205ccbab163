package chaos_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

// quorumScenarios are those of a Locker on a majority of servers.
func quorumScenarios() []scenario {
	return []scenario{
		// At most two of five servers are ill at the same time. Each call gets the key in time, and each
		// process gets holds all the time. A lease may be lost if one server after another
		// fails, because one that did not grant it, or forgot it, does not renew it.
		{
			name: "quorum, a minority fails", procs: 8, load: load{Hot: 3, Any: 3, Long: 1, Calm: true}, wait: 10 * time.Second, links: true,
			on: masters(5), happens: failMinority,
			must: rules{longest: 10*time.Second + 2*time.Second, pause: 10 * time.Second, fewLost: true, permits: []string{"lost"}},
			proves: func(r *run, v *verdict) bool {
				return r.struckEach() && v.counts["server failed"] > len(r.struck) && r.outlived() > 0
			},
		},

		// Three of five servers fail at the same time. Calls return ErrUnavailable in time, and go on
		// when the servers vote again.
		{
			name: "quorum, a majority fails", procs: 8, load: load{Hot: 3, Any: 3, Long: 1, Calm: true}, wait: shortWait, links: true,
			on: masters(5), happens: failMajority,
			must: rules{gap: noVote, longest: 3500*time.Millisecond + time.Second, permits: []string{"lost", "unavailable"}}, // GUARANTEES, I12; and a second for the release
			proves: func(r *run, v *verdict) bool {
				return len(r.struck) >= 9 && v.counts["unavailable"] > 0 && v.counts["lost"] > 0
			},
		},

		// Two of three servers lose what they wrote in the last second, and start again at once. They
		// do not vote until the leases that they have lost have ended. In the control they vote at
		// once, because they say that they sync each write: then the judge finds two holders.
		powerCut("quorum, a power cut", "everysec", rules{permits: mayLose.permits}, func(r *run, v *verdict) bool {
			return len(r.struck) >= 6 && v.counts["lost"] > 0
		}),
		powerCut("quorum, a power cut, control", "always", mayLose, func(_ *run, v *verdict) bool { return v.overlaps > 0 }),
	}
}

const (
	shortWait = 2 * time.Second
	// noVote is longer than the time for which a restarted server does not vote: a lease and its
	// hundredth. Two seconds more, because the server says only in whole seconds how old it is.
	noVote = lease + lease/100 + 2*time.Second
)

// masters starts n independent servers, and waits until they vote.
func masters(n int) func(*run) {
	return func(r *run) {
		for range n {
			r.startMaster()
		}
		time.Sleep(noVote)
	}
}

func (r *run) startMaster(args ...string) {
	one := redistest.Real(r, args...)
	r.masters, r.task.Addrs = append(r.masters, one), append(r.task.Addrs, one.Addr())
	r.task.Client = "masters"
}

// masterFault is what may happen to one of the servers. strike begins it, and returns what ends it.
type masterFault struct {
	name   string
	strike func(r *run, i int) (end func())
	after  time.Duration // for which the server does not vote then
}

var masterFaults = []masterFault{
	{"killed, and empty", func(r *run, i int) func() { r.masters[i].Stop(); return r.masters[i].Start }, noVote},
	{"stopped", func(r *run, i int) func() { r.masters[i].Pause(); return r.masters[i].Resume }, 0},
	{"cut off", func(r *run, i int) func() { return silence(i, r.slots) }, 0},
	{"cut off from one", func(r *run, i int) func() { return silence(i, []*slot{r.slots[rand.IntN(len(r.slots))]}) }, 0},
}

// silence cuts workers off from server i.
func silence(i int, from []*slot) (end func()) {
	for _, p := range from {
		p.links[i].Silence()
	}
	return func() {
		for _, p := range from {
			p.links[i].Heal()
		}
	}
}

// struck is a fault of a server.
type struck struct {
	masterFault
	server      int
	began       int64
	end         func()
	endAt       time.Time // when to end it
	ended, well int64     // 0: not yet. From well on the server votes again
}

func (r *run) strike(f masterFault, server int, d time.Duration) *struck {
	r.fault() // the judge accepts that a register refuses a lost hold
	s := &struck{masterFault: f, server: server, began: process.Now(), end: f.strike(r, server), endAt: time.Now().Add(d)}
	r.struck = append(r.struck, s)
	return s
}

// cure ends the fault.
func (s *struck) cure() {
	s.end()
	s.ended = process.Now()
	s.well = s.ended + int64(s.after)
}

// over ends the fault when it is time, and reports whether the server votes again.
func (s *struck) over() bool {
	if s.ended == 0 && time.Now().After(s.endAt) {
		s.cure()
	}
	return s.ended != 0 && process.Now() > s.well
}

// failMinority strikes servers one after another, so that at most two of five do not vote at any
// time.
func failMinority(r *run) {
	var ill []*struck
	both := 0
	for end := time.Now().Add(*runFor); len(ill) > 0 || time.Now().Before(end); time.Sleep(lease / 10) {
		ill = slices.DeleteFunc(ill, (*struck).over)
		if len(ill) == 2 || rand.IntN(4) > 0 || time.Now().After(end) {
			continue
		}
		f, i := masterFaults[len(r.struck)%len(masterFaults)], rand.IntN(len(r.masters))
		if len(ill) == 1 {
			both++
			for i == ill[0].server {
				i = rand.IntN(len(r.masters))
			}
		}
		ill = append(ill, r.strike(f, i, rand.N(lease)))
	}
	r.Logf("%d faults, %d of them while another server was ill", len(r.struck), both)
}

// failMajority strikes three servers at the same time, again and again, with calls between.
func failMajority(r *run) {
	for i, end := 0, time.Now().Add(*runFor); time.Now().Before(end); i++ {
		r.each(20)
		var ill []*struck
		for _, server := range rand.Perm(len(r.masters))[:3] {
			ill = append(ill, r.strike(masterFaults[i%3], server, 0))
		}
		time.Sleep(lease/2 + rand.N(lease))
		for _, s := range ill {
			s.cure()
		}
		r.fault() // so that each waits for holds after it
		r.heal()
		time.Sleep(ill[0].after)
	}
	r.each(20)
}

// struckEach reports whether each kind of fault happened.
func (r *run) struckEach() bool {
	kinds := map[string]bool{}
	for _, s := range r.struck {
		kinds[s.name] = true
	}
	return len(kinds) == len(masterFaults)
}

// outlived returns the number of holds that were renewed through a fault of a server: they began
// before it, and were valid more than a lease later.
func (r *run) outlived() (n int) {
	for _, h := range r.holds {
		if slices.ContainsFunc(r.struck, func(s *struck) bool { return h.seen < s.began && s.began+int64(lease) < h.valid }) {
			n++
		}
	}
	return n
}

// judgeLost checks that no lease was lost that a majority of the servers could renew: that were well
// from a second before the hold to a lease after it was valid. A server that replies late takes no
// part in a grant either, so a machine that was late proves nothing.
func (r *run) judgeLost(v *verdict) {
	for _, h := range r.holds {
		if !h.lost {
			continue
		}
		ill := map[int]bool{}
		for _, s := range r.struck {
			if s.began < h.valid+int64(lease) && h.seen < s.well+int64(gap) {
				ill[s.server] = true
			}
		}
		if late := r.late(h.seen-int64(gap), h.valid+int64(lease)); len(ill) <= len(r.masters)/2 && late < lease/2 {
			v.fail("lost", "%v, with %d servers that failed, on a machine that was late by %v", h, len(ill), late)
		}
	}
}

// tellQuorum prints how available the keys were.
func (r *run) tellQuorum(v *verdict) {
	r.Helper()
	seen := make([]int64, len(r.holds))
	for i, h := range r.holds {
		seen[i] = h.seen
	}
	slices.Sort(seen)
	seconds, longest := map[int64]bool{}, int64(0)
	for i, at := range seen {
		seconds[(at-seen[0])/int64(time.Second)] = true
		if i > 0 {
			longest = max(longest, at-seen[i-1])
		}
	}
	all := 1 + (seen[len(seen)-1]-seen[0])/int64(time.Second)
	r.Logf("%s: holds began in %d of %d seconds; none began for at most %v, and none of one process for at most %v; %d of %d grants needed a second round; %d holds outlived a fault; %d leases were lost",
		r.name, len(seconds), all, time.Duration(longest), v.longestPause, v.counts["raised"], v.counts["granted"], r.outlived(), v.counts["lost"])
	times, until := map[string]int{}, map[string]time.Duration{}
	for _, s := range r.struck {
		times[s.name]++
		if i, _ := slices.BinarySearch(seen, s.ended); i < len(seen) {
			until[s.name] = max(until[s.name], time.Duration(seen[i]-s.ended))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		r.Logf("%s: %d times %s; the next hold began at most %v after its end", r.name, times[name], name, until[name])
	}
}

// powerCut is a scenario of servers that say that they sync their append-only file in this way.
func powerCut(name, fsync string, must rules, proves func(*run, *verdict) bool) scenario {
	must.gap, must.longest = noVote, topologyWait+2*time.Second
	return scenario{
		name: name, procs: 4, load: load{Any: 1, Long: 1, Fresh: 2, Calm: true}, wait: topologyWait, must: must, proves: proves,
		on: func(r *run) {
			for range 3 {
				r.disks = append(r.disks, r.TempDir())
				r.startMaster("--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--dir", r.disks[len(r.disks)-1])
			}
			time.Sleep(noVote)
		},
		happens: cutPower,
	}
}

// cutPower stops the first holder of a key soon after the grant. Then it kills two of three servers,
// and starts them again without what they wrote in the last second, as if that had not been synced.
// Other calls wait for the key. When the holder goes on, its lease has not ended, and it has not heard
// of the restarts.
func cutPower(r *run) {
	removed := int64(0)
	for end := time.Now().Add(*runFor); time.Now().Before(end); {
		r.each(20)
		sizes := make([]int64, len(r.disks))
		var first *hold
		r.settled("the first hold of a key", func() bool {
			for i, dir := range r.disks {
				sizes[i] = appended(r, dir, -1)
			}
			since := process.Now()
			return chaos.Within(lease/6, func() bool { first = r.firstHold(fresh, since); return first != nil })
		})
		var wg sync.WaitGroup
		for _, p := range r.slots {
			if first != nil && p.name == first.proc {
				wg.Go(func() { p.stop(order{}, lease*2/3) })
			}
		}
		time.Sleep(rand.N(lease / 20))
		for _, i := range rand.Perm(len(r.masters))[:2] {
			r.strike(masterFault{"killed without its last second", func(r *run, i int) func() {
				r.masters[i].Stop()
				return func() {
					removed += appended(r, r.disks[i], sizes[i])
					r.masters[i].Start()
				}
			}, noVote}, i, 0)
		}
		for _, s := range r.struck[len(r.struck)-2:] {
			s.cure()
		}
		wg.Wait()
		r.heal()
		time.Sleep(noVote)
	}
	r.Logf("%d bytes were removed", removed)
}

// firstHold returns the first hold of a key with prefix, if it has begun after since, or nil.
func (r *run) firstHold(prefix string, since int64) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range slices.Backward(r.holds) {
		if strings.HasPrefix(h.key, prefix) {
			if h.seen <= since || slices.ContainsFunc(r.holds, func(o *hold) bool { return o.key == h.key && o != h }) {
				return nil
			}
			return h
		}
	}
	return nil
}

// appended returns the size of the append-only file in dir. If size is not negative, it cuts the file
// to it, and returns by how much.
func appended(r *run, dir string, size int64) int64 {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		r.Fatalf("append-only files: %v, %v, want one", files, err)
	}
	info, err := os.Stat(files[0])
	if err == nil && size >= 0 {
		if err = os.Truncate(files[0], size); err == nil {
			return info.Size() - size
		}
	}
	if err != nil {
		r.Fatal(err)
	}
	return info.Size()
}
