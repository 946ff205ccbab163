package chaos_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

// serverFault is what a real redis-server may do to its clients: it replies late, not at all or with
// an error, or loses its data. Faults of the network are in package sim.
type serverFault struct {
	name    string
	strike  func(r *run, admin *redis.Client) // returns when the fault has ended
	forgets bool                              // the server's data is lost, leases too: a key may have two holders until one of them sends a command
	outlast bool                              // it lasts longer than a lease
	says    string                            // the error of a plain command meanwhile
}

const (
	gap  = time.Second // of faults that a lease survives
	long = lease + time.Second
)

func config(r *run, admin *redis.Client, settings ...string) {
	r.Helper()
	for i := 0; i < len(settings); i += 2 {
		if err := admin.ConfigSet(background(), settings[i], settings[i+1]).Err(); err != nil {
			r.Fatalf("CONFIG SET %s %s: %v", settings[i], settings[i+1], err)
		}
	}
}

func do(r *run, admin *redis.Client, args ...any) {
	r.Helper()
	if err := admin.Do(background(), args...).Err(); err != nil {
		r.Fatalf("%v: %v", args, err)
	}
}

// while changes a setting, waits, and changes it back.
func while(setting, bad, good string) func(*run, *redis.Client) {
	return func(r *run, admin *redis.Client) {
		r.Helper()
		config(r, admin, setting, bad)
		time.Sleep(gap)
		config(r, admin, setting, good)
	}
}

// again repeats a command for d.
func again(d time.Duration, args ...any) func(*run, *redis.Client) {
	return func(r *run, admin *redis.Client) {
		r.Helper()
		for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
			if do(r, admin, args...); time.Now().After(end) {
				return
			}
		}
	}
}

func pausedClients(what string) func(*run, *redis.Client) {
	return func(r *run, admin *redis.Client) {
		r.Helper()
		do(r, admin, "CLIENT", "PAUSE", gap.Milliseconds(), what)
		time.Sleep(gap)
	}
}

func stoppedFor(d time.Duration) func(*run, *redis.Client) {
	return func(r *run, _ *redis.Client) {
		r.one.Pause()
		time.Sleep(d)
		r.one.Resume()
	}
}

func disconnect(r *run, admin *redis.Client) {
	do(r, admin, "CLIENT", "KILL", "TYPE", "normal")
	do(r, admin, "CLIENT", "KILL", "TYPE", "pubsub")
}

var serverFaults = []serverFault{
	{name: "client pause all", strike: pausedClients("ALL"), says: "timeout"},
	{name: "client pause write", strike: pausedClients("WRITE"), says: "timeout"},
	{name: "debug sleep", strike: again(0, "DEBUG", "SLEEP", gap.Seconds()), says: "timeout"},
	{name: "debug sleep, longer than a lease", strike: again(0, "DEBUG", "SLEEP", long.Seconds()), outlast: true, says: "timeout"},
	{name: "stopped", strike: stoppedFor(gap), says: "timeout"},
	{name: "stopped, longer than a lease", strike: stoppedFor(long), outlast: true, says: "timeout"},
	{name: "client kill", strike: func(r *run, admin *redis.Client) {
		for end := time.Now().Add(gap); time.Now().Before(end); time.Sleep(gap / 10) {
			disconnect(r, admin)
		}
	}},
	{name: "script flush", strike: again(gap, "SCRIPT", "FLUSH")},
	{name: "oom", strike: while("maxmemory", "1", "0"), says: "OOM"},
	{name: "no replicas", strike: while("min-replicas-to-write", "1", "0"), says: "NOREPLICAS"},
	{name: "read only", strike: func(r *run, admin *redis.Client) {
		do(r, admin, "REPLICAOF", "127.0.0.1", "1")
		time.Sleep(gap)
		do(r, admin, "REPLICAOF", "NO", "ONE")
	}, says: "READONLY"},
	{name: "misconf", strike: func(r *run, admin *redis.Client) {
		dir, err := admin.ConfigGet(background(), "dir").Result()
		if err != nil || os.RemoveAll(dir["dir"]) != nil {
			r.Fatal("no folder to remove: ", err)
		}
		config(r, admin, "save", "3600 1", "stop-writes-on-bgsave-error", "yes")
		do(r, admin, "BGSAVE") // it fails, because its folder is missing
		r.settled("BGSAVE fails", func() bool {
			return strings.Contains(admin.Info(background(), "persistence").Val(), "rdb_last_bgsave_status:err")
		})
		time.Sleep(gap)
		config(r, admin, "save", "", "stop-writes-on-bgsave-error", "no")
	}, says: "MISCONF"},
	{name: "busy script", strike: func(r *run, admin *redis.Client) {
		config(r, admin, "busy-reply-threshold", "50")
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			_ = admin.Eval(background(), "while true do end", nil).Err() // ends by SCRIPT KILL
		}()
		r.settled("the script runs", func() bool { return redis.HasErrorPrefix(admin.Time(background()).Err(), "BUSY") })
		time.Sleep(gap)
		do(r, admin, "SCRIPT", "KILL")
		<-killed
	}, says: "BUSY"},
	{name: "loading", strike: func(r *run, admin *redis.Client) {
		config(r, admin, "key-load-delay", "2000", "loading-process-events-interval-bytes", "1024")
		do(r, admin, "DEBUG", "POPULATE", "500", "{populate}", "100")
		do(r, admin, "DEBUG", "RELOAD") // 500 keys, 2 ms each
		config(r, admin, "key-load-delay", "0")
	}, says: "LOADING"},
	{name: "too many clients", strike: func(r *run, admin *redis.Client) {
		config(r, admin, "maxclients", "1")
		disconnect(r, admin)
		time.Sleep(gap)
		config(r, admin, "maxclients", "10000")
		if info := admin.Info(background(), "stats").Val(); strings.Contains(info, "rejected_connections:0\r") {
			r.Error("inconclusive: no connection was refused")
		}
	}},
	{name: "flush", strike: again(0, "FLUSHALL"), forgets: true},
	{name: "restart without data", strike: func(r *run, _ *redis.Client) {
		r.one.Stop()
		r.one.Start()
	}, forgets: true},
}

// happens causes the fault while calls are made, and while the test holds a key that no one waits
// for.
func (f serverFault) happens(r *run) {
	admin := r.one.Client(r)
	locks := chaos.Locker(r, r.one.Client(r), lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: patience}})
	began := time.Now()
	held, err := locks.Acquire(r.Context(), "held", lockcore.Terms{})
	if err != nil {
		r.Fatal("before: ", err)
	}
	r.each(50)
	during, over := context.WithCancel(r.Context())
	heard := witness(during, r.one.Client(r, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 }))
	r.fault()
	struck := time.Now()
	f.strike(r, admin)
	longer := max(time.Since(struck)-gap, 0)
	r.heal()
	over()
	if text := <-heard; !strings.Contains(text, f.says) {
		r.Errorf("inconclusive: no command got %q: %s", f.says, text)
	}
	r.each(50)
	f.judge(r, held, r.control.Late(began)+longer)
	chaos.CheckTTLs(r, admin)
}

// judge checks the lease of the test. A lease is two gaps longer than a short fault, so it may also
// be lost on a machine that is late by more than one gap.
func (f serverFault) judge(r *run, held *lockcore.Lease, late time.Duration) {
	r.Helper()
	if f.forgets { // the holder learns of that with its next renewal
		<-held.Context().Done()
	}
	err := held.Release(background())
	if !f.forgets && !f.outlast && late > gap && errors.Is(err, lockcore.ErrLost) {
		r.Logf("the lease was lost on a machine that was late by %v", late)
		return
	}
	if lost := f.forgets || f.outlast; lost != errors.Is(err, lockcore.ErrLost) || !lost && err != nil {
		r.Errorf("the lease that was held through it: %v", err)
	}
}

// witness sends commands to the server all the time, to prove that a fault struck: calls wait until
// it ends. When ctx has ended, the channel gets the errors that witness saw.
func witness(ctx context.Context, rdb *redis.Client) <-chan string {
	heard := make(chan string, 1)
	go func() {
		all := map[string]bool{}
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, lease/10)
			if err := rdb.Set(short, "{witness}", 1, time.Minute).Err(); err != nil {
				all[err.Error()] = true
			}
			cancel()
			time.Sleep(5 * time.Millisecond)
		}
		heard <- strings.Join(slices.Collect(maps.Keys(all)), "; ")
	}()
	return heard
}

// scenario is the scenario of the fault.
func (f serverFault) scenario() scenario {
	return scenario{
		name: "server: " + f.name, procs: 3, load: load{Any: 4, Once: 2, Calm: true}, wait: 10 * time.Second, happens: f.happens,
		must: rules{overlaps: f.forgets, secondRuns: f.forgets, lag: gap, permits: []string{"unavailable", "lost", "unrecorded"}},
	}
}
