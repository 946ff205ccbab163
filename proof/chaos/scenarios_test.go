package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

var (
	runFor     = flag.Duration("for", time.Minute, "how long processes compete, with each number of them, and how long servers of a quorum fail; twice as long for shares")
	kills      = flag.Int("kills", 60, "workers that are killed at a point")
	latestN    = flag.Int("latest-kills", 300, "workers that are killed while tasks of Latest are enqueued")
	stops      = flag.Int("stops", 40, "workers that are stopped at a point")
	crashes    = flag.Int("crashes", 30, "how often PostgreSQL is killed; a third for the control")
	promotions = flag.Int("promotions", 10, "standbys of PostgreSQL that are promoted")
	after      = flag.Duration("after", 3*time.Second, "how long the load goes on after a fault of servers")
	migrations = flag.Int("migrations", 100, "slots that are moved under load; a fifth with ReplicaAcks")
	httpKeys   = flag.Int("http-keys", 1000, "once keys that clients send requests for, 50 times each")
)

// scenario is a row of the table: what runs on which servers, what happens to whom, what is judged.
type scenario struct {
	name     string
	on       func(*run) // starts the servers; default: one
	procs    int        // workers
	load     load       // of each of them
	wait     time.Duration
	noGroups bool // each call sends its own commands, so that points at commands are reached
	links    bool // each worker is behind a proxy for each server, which can fall silent
	parallel bool // another scenario may run at the same time
	happens  func(*run)
	must     rules
	proves   func(*run, *verdict) bool // whether the run has shown anything
}

// scenarios returns the table.
func scenarios() []scenario {
	all := []scenario{
		// Two holds of a key never overlap, no call is stuck, and no process gets much less than the
		// others. A process that dies costs a lease.
		competition(1), competition(3), competition(8),

		// Processes share a few keys. Limits change meanwhile. The permits of a killed process are
		// free within its lease and 250 ms, and at the end none is lost and none is added.
		{
			name: "shares", procs: 8, load: load{Shares: 12}, wait: lockcore.Forever, links: true,
			happens: func(r *run) { r.disturb(2**runFor, 3, shareFault); r.countPermits() },
			proves: func(r *run, v *verdict) bool {
				return len(r.deaths) > 0 && len(r.disturbed) > 0 && v.counts["lost"] > 0
			},
		},

		// Processes share a rate, and are killed: no Per has too many calls, and nearly all slots are used.
		rates(*runFor),

		// Another process gets the key of a killed worker within its lease and 250 ms, whatever the
		// point. A once key runs once more for each takeover, and all calls get the same record.
		{
			name: "kills", procs: 4, load: load{Hot: 4, Any: 6, Long: 2, Once: 6}, wait: patience, noGroups: true,
			happens: func(r *run) {
				r.inTurn(*kills, 1, func(p *slot, i int) { p.kill(killPoints[i%len(killPoints)]); p.begin() })
			},
			proves: func(r *run, v *verdict) bool {
				return r.reached() >= *kills*3/4 && v.counts["abandoned"] > 0 && v.takeovers > 0 && v.unknown > 0
			},
		},

		// Tasks of a few keys are enqueued while their workers are killed: after the last one of a key a
		// run begins and succeeds, and no task runs after the success of a newer one.
		latestKills("latest", func() int { return *latestN }),

		// A worker is stopped at a point for half a lease to three leases. A resource that checks
		// tokens refuses its late writes; one that does not would accept them.
		{
			name: "stops", procs: 4, load: load{Hot: 2, Any: 6, Long: 2, Calm: true}, wait: patience, noGroups: true,
			happens: func(r *run) {
				r.inTurn(*stops, 2, func(p *slot, i int) {
					p.stop(stopPoints[i%len(stopPoints)], lease/2+lease*5/2*time.Duration(i)/time.Duration(*stops))
				})
			},
			proves: func(_ *run, v *verdict) bool {
				return v.overtaken > 0 && v.rejected >= v.overtaken && v.counts["lost"] > 0
			},
		},

		// Many clients send the request of each once key many times, together and later, while the
		// servers are killed and started again on the same port.
		{
			name: "http", procs: 3, load: load{Listen: "later"}, happens: killServers,
			proves: func(_ *run, v *verdict) bool {
				return v.midRun > 0 && v.takeovers > 0 && v.unknown > 0 && v.answers >= *httpKeys*50
			},
		},

		// A primary fails or is replaced. Without ReplicaAcks a grant or a record may be lost with it:
		// then two hold a key for at most a lease. With ReplicaAcks there is no overlap and no second
		// run, because the sentinels promote the replica that has the most data. All calls continue.
		topology("sentinel, primary killed", sentinels("sentinel"), 0, (*run).killPrimary, mayLose),
		topology("sentinel, primary stopped and resumed", sentinels("sentinel"), 0, (*run).stopPrimary, mayLose),
		topology("sentinel, primary stopped and resumed, ReplicaAcks", sentinels("sentinel", minReplicas...), 1, (*run).stopPrimary, losesNothing),
		topology("cluster, primary killed", cluster("cluster"), 0, (*run).killPrimary, mayLose),

		// Slots move from primary to primary, with keys that are held and waited for: no lost lease.
		topology("cluster, slots move", cluster("cluster"), 0, migrate(func() int { return *migrations }), rules{}),
		topology("cluster, slots move, ReplicaAcks", cluster("cluster"), 1, migrate(func() int { return max(*migrations/5, 1) }), rules{}),
	}
	// A primary that works is replaced, as for its maintenance. Workers from before and from after
	// that continue, with each kind of client. Sentinel does not pause the old primary while it
	// promotes a replica, so a grant may be lost until the old one stops (GUARANTEES, P2). Without
	// min-replicas-to-write that is only after 8 s, when Sentinel demotes it.
	for _, client := range []string{"sentinel", "sentinel, NewUniversalClient", "sentinel, in a wrapper"} {
		all = append(all, topology("planned: "+client, sentinels(client, minReplicas...), 0, planned(func(r *run) { r.trio.Plan() }, 20), planLoses))
	}
	for _, client := range []string{"cluster", "cluster, reading from replicas", "cluster, NewClient", "cluster, NewUniversalClient"} {
		all = append(all, topology("planned: "+client, cluster(client), 0, planned(func(r *run) { r.shards.Plan(r.slotOf(0)) }, 4), losesNothing))
	}
	all = append(all, topology("planned: a Dialer", newRoute, 0, planned((*run).move, 4), losesNothing))
	for _, f := range serverFaults {
		all = append(all, f.scenario())
	}
	return slices.Concat(all, quorumScenarios(), postgresScenarios())
}

var minReplicas = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}

const (
	topologyWait = 5 * time.Second
	failoverGap  = 20 * time.Second // a failover takes 2 to 4 s; a client that does not find the new primary takes a minute
)

var (
	mayLose      = rules{overlaps: true, secondRuns: true, permits: []string{"acks", "lost", "unavailable", "unrecorded"}}
	planLoses    = rules{overlaps: true, secondRuns: true, lag: lease, permits: mayLose.permits}
	losesNothing = rules{permits: mayLose.permits}
)

func topology(name string, on func(*run), acks int, happens func(*run), must rules) scenario {
	must.gap, must.longest = failoverGap, topologyWait+lease
	return scenario{
		name: name, procs: 3, load: load{Any: 8, Long: 2, Once: 3, Calm: true}, wait: topologyWait, parallel: true,
		on: func(r *run) { on(r); r.task.Acks = acks }, happens: happens, must: must,
	}
}

func competition(procs int) scenario {
	each := max(48/procs, 1)
	return scenario{
		name: fmt.Sprint("competition of ", procs), procs: procs, load: load{Hot: each, Any: each}, wait: lockcore.Forever,
		happens: killSome, must: rules{even: true},
		proves: func(_ *run, v *verdict) bool {
			return v.counts["refused"] > 0 && v.counts["canceled"] > 0 && v.counts["abandoned"] > 0
		},
	}
}

// killSome starts further workers like the others, one after another, and kills each: every second
// one at a random moment, the others while they hold the hot key.
func killSome(r *run) {
	for i, end := 0, time.Now().Add(*runFor-2*lease); time.Now().Before(end); i++ {
		p := r.join()
		time.Sleep(time.Second + rand.N(time.Second))
		o := order{}
		if i%2 == 0 {
			o = order{Point: atWorking, Keys: "hot"}
		}
		p.kill(o)
		time.Sleep(2 * time.Second)
	}
	time.Sleep(2 * lease)
}

// inTurn calls act n times for workers in turn, for at most beside of them at the same time. Between
// two acts there is time for the lease of the worker to end.
func (r *run) inTurn(n, beside int, act func(p *slot, i int)) {
	i := 0
	for i < n {
		done := make(chan struct{}, beside)
		for k := range beside {
			go func() { act(r.slots[(i+k)%len(r.slots)], i+k); done <- struct{}{} }()
		}
		for range beside {
			<-done
		}
		i += beside
		time.Sleep(lease/2 + rand.N(lease))
	}
	time.Sleep(lease)
}

// reached returns how many workers were killed at the point of their order.
func (r *run) reached() (n int) {
	for _, d := range r.deaths {
		if d.point != "" {
			n++
		}
	}
	return n
}

var killPoints = []order{
	{Point: "acquire answered", Keys: "k"},
	{Point: atBegun, Keys: "k"},
	{Point: atEnded, Keys: "k"},
	{Point: "renew sent", Keys: "long"},
	{Point: "renew answered", Keys: "long"},
	{Point: "release sent", Keys: "k"},
	{Point: "release answered", Keys: "k"},
	{Point: "acquire answered", Keys: "order"},
	{Point: atBegun, Keys: "order"},
	{Point: atWorking, Keys: "payout"},
	{Point: atEnded, Keys: "order"},
	{Point: "complete sent", Keys: "order"},
	{Point: "complete answered", Keys: "order"},
	{Point: atWorking, Keys: "hot"},
	{Point: "rotate answered", Keys: "hot"},
	{Point: atWaiting},
}

// stopPoints are mostly those at which a stop does harm.
var stopPoints = []order{
	{Point: atWorking, Keys: "k"},
	{Point: atWorking, Keys: "hot"},
	{Point: "renew answered", Keys: "long"},
	{Point: atWorking, Keys: "k"},
	{Point: "acquire answered", Keys: "k"},
	{Point: atWorking, Keys: "long"},
	{Point: "release sent", Keys: "k"},
	{Point: atWorking, Keys: "k"},
	{Point: atWaiting},
	{Point: "renew sent", Keys: "long"},
}

// httpPoints is how servers are killed, in turn. A point "" is a random moment.
var httpPoints = []order{
	{Point: atWorking, Keys: "order"},
	{Point: atWorking, Keys: "payout"},
	{},
	{Point: atSent, Keys: "order"},
	{},
	{Point: atEnded, Keys: "order"},
	{},
	{Point: atGranted, Keys: "order"},
	{},
	{Point: atBegun, Keys: "quick"},
	{},
	{Point: atRecorded, Keys: "order"},
	{},
	{Point: atEnded, Keys: "payout"},
	{},
	{Point: atGranted, Keys: "payout"},
	{},
	{Point: atSent, Keys: "payout"},
	{},
}

// killServers kills a worker every half second, and starts it again on the same port, while clients
// send their requests.
func killServers(r *run) {
	c, sent := newCrowd(r), make(chan struct{})
	go func() { defer close(sent); c.send(*httpKeys, 50) }()
	for i := 0; ; i++ {
		select {
		case <-sent:
			return
		case <-time.After(250*time.Millisecond + rand.N(500*time.Millisecond)):
		}
		p := r.slots[rand.IntN(len(r.slots))]
		p.kill(httpPoints[i%len(httpPoints)])
		p.begin()
	}
}

// shareFault kills the worker, stops it, or cuts it off if it is behind a proxy, at a random moment.
func shareFault(p *slot, until time.Time) {
	d := min(lease/10+rand.N(2*lease), time.Until(until))
	switch rand.IntN(3 + len(p.links)) {
	case 0, 1:
		p.killForPermits()
	case 2:
		p.stop(order{}, d)
	default:
		p.cut(d)
	}
}

// killForPermits kills the worker while the test waits for all permits of the key that has its
// name, and starts the next one.
func (p *slot) killForPermits() {
	r := p.r
	all := testcall.Call{Limit: lockcore.Limit{N: minLimit, Weight: minLimit}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
	r.settled("the permits are held", func() bool {
		h, err := r.locks(0).Inspect(background(), event.KindExclusive, p.name)
		return err == nil && len(h.Shares) == minLimit-1
	})
	granted := make(chan int64, 1)
	go func() {
		le, err := all.Acquire(background(), r.locks(0), p.name)
		granted <- process.Now()
		if err == nil {
			err = le.Release(background())
		}
		if err != nil {
			r.Errorf("the permits of %s: %v", p.name, err)
		}
	}()
	r.settled("the test waits", func() bool {
		h, err := r.locks(1).Inspect(background(), event.KindExclusive, p.name)
		return err == nil && (h.Queue > 0 || len(granted) > 0)
	})
	time.Sleep(rand.N(lease / 3)) // at any moment between two renewals
	early := len(granted) > 0     // an earlier fault had taken the lease
	name, died := p.name, p.kill(order{})
	at := <-granted
	if took := time.Duration(at - died); !early && took > lease+recovery+r.late(died, at) {
		r.Errorf("the permits of %s are free %v after its death", name, took)
	}
	p.begin()
}

// countPermits checks that each key has as many permits as its limit, when all workers have ended.
func (r *run) countPermits() {
	r.end()
	for _, key := range shareKeys {
		var leases []*lockcore.Lease
		for i := range minLimit {
			le, err := r.locks(i%2).AcquireShare(background(), key, lockcore.Limit{N: minLimit}, lockcore.Terms{Wait: lockcore.NoWait})
			if err != nil {
				r.Errorf("permit %d of %d of %s: %v", i+1, minLimit, key, err)
				continue
			}
			leases = append(leases, le)
		}
		for _, limit := range []int{minLimit, 0} {
			call := testcall.Call{Limit: lockcore.Limit{N: limit}, Terms: lockcore.Terms{Wait: lockcore.NoWait}}
			if _, err := call.Acquire(background(), r.locks(1), key); !errors.Is(err, lockcore.ErrBusy) {
				r.Errorf("%s beside %d permits, with limit %d: %v, want ErrBusy", key, minLimit, limit, err)
			}
		}
		for _, le := range leases {
			if err := le.Release(background()); err != nil {
				r.Errorf("%s: %v", key, err)
			}
		}
	}
}

// locks returns one of two Lockers of the test on the only server, without a proxy.
func (r *run) locks(i int) *lockcore.Locker {
	r.lockersOnce.Do(func() {
		o := lockcore.Options{Terms: lockcore.Terms{Lease: lease}}
		for range 2 {
			if r.base != nil {
				r.lockers = append(r.lockers, r.base.locker(r, o))
				continue
			}
			r.lockers = append(r.lockers, chaos.Locker(r, r.one.Client(r), o))
		}
	})
	return r.lockers[i]
}
