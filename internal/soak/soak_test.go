package soak_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

var (
	runFor     = flag.Duration("for", 2*time.Second, "how long, with each number of processes")
	procs      = flag.String("procs", "1,3,8", "numbers of processes")
	goroutines = flag.Int("goroutines", 48, "goroutines in all on the keys, and as many on the hot one, at least one a process")
	keys       = flag.Int("keys", 4, "keys besides the hot one")
	kill       = flag.Duration("kill", 0, "how often another process that takes part is killed; 0: never")
	sharesFor  = flag.Duration("shares", 3*time.Second, "how long the soak of shares takes; a fault ends two leases before its end at the latest")
	atLeast    = flag.Int("at-least", 300, "acquisitions below which a run is inconclusive, and fails")
)

const (
	lease = 3 * time.Second

	evenShare   = 0.8              // of the mean: the least share of the hot key that a process must have
	judgeShares = 10 * time.Second // in a run that is long enough
)

func TestMain(m *testing.M) { chaos.Main(m, work) }

// Processes compete for a few keys. Two holds of a key never overlap, and tokens grow. No call is
// stuck, and no process gets much less than the others. A process that dies costs a lease. At the
// end no key is held and no channel has a subscriber.
func TestSoak(t *testing.T) {
	testlevel.Campaign(t)
	kills, abandoned := 0, 0
	for n := range strings.SplitSeq(*procs, ",") {
		n, err := strconv.Atoi(n)
		if err != nil || n < 1 {
			t.Fatalf("-procs is %q, must be numbers separated by commas", *procs)
		}
		t.Run(fmt.Sprintf("%d processes", n), func(t *testing.T) {
			r := &run{T: t, server: redistest.Real(t), procs: n}
			abandoned += r.judge(r.contend())
			kills += r.kills
		})
	}
	if kills > 0 && abandoned == 0 {
		t.Errorf("inconclusive: none of %d processes had a key when it was killed", kills)
	}
}

// run is one soak with one number of processes.
type run struct {
	*testing.T
	server *redistest.Server
	procs  int
	kills  int
}

// contend runs the workers and the processes that get killed. It returns the reports of the
// workers.
func (r *run) contend() []report {
	reports, workers := make([]report, r.procs), make([]*chaos.Process, r.procs)
	for i := range workers {
		workers[i] = r.start(fmt.Sprint("w", i), &reports[i])
	}
	if *kill > 0 {
		r.killSome(time.Now().Add(*runFor - 2*lease)) // the keys that the last one had are taken before the end
	}
	for i, p := range workers {
		if <-p.Ended; reports[i].Acquired == nil {
			r.Errorf("worker %d ended without a report: %v", i, p.Err)
		}
	}
	return reports
}

// start starts a process of the soak. Its report is complete when it has ended.
func (r *run) start(name string, out *report) *chaos.Process {
	each := max(*goroutines/r.procs, 1)
	t := task{Name: name, Addr: r.server.Addr(), For: *runFor, Lease: lease, Goroutines: each, Hot: each, Keys: *keys, Together: r.procs}
	return chaos.Start(r, t, func(_ *chaos.Process, said report) { *out = said })
}

// killSome starts further processes like the others, one after another, and kills each at a random
// moment. It kills every second one while that process holds the hot key.
func (r *run) killSome(until time.Time) {
	rdb := r.server.Client(r)
	for {
		alive := *kill/4 + rand.N(*kill/4)
		if time.Now().Add(alive).After(until) {
			return
		}
		p := r.start(fmt.Sprint("victim", r.kills), new(report))
		time.Sleep(alive)
		for r.kills%2 == 0 && !r.holdsHot(rdb, p.PID()) && time.Now().Before(until) {
			time.Sleep(time.Millisecond)
		}
		p.Kill()
		r.kills++
		time.Sleep(*kill / 2)
	}
}

// holdsHot reports whether the process has the hot key.
func (r *run) holdsHot(rdb *redis.Client, pid int) bool {
	fields, _ := redistest.Fields(r.Context(), rdb, "holdfast:2:x:{"+hotKey+"}") // an error is ignored: the key changed its type meanwhile
	return fields["s"] == "h" && strings.Contains(fields["m"], fmt.Sprintf("\n%d\n", pid))
}
