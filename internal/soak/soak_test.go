package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	workerEnv = "HOLDFAST_SOAK_WORKER"
	lease     = 3 * time.Second

	evenShare   = 0.8              // of the mean: what the process with the smallest share of the hot key has at least
	judgeShares = 10 * time.Second // in a run that is long enough
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(work())
	}
	os.Exit(m.Run())
}

// Processes that contend for a few keys: never two inside at once, tokens grow, nobody is stuck, nobody gets much less than the others,
// a process that dies costs a lease, and nothing is left behind.
func TestSoak(t *testing.T) {
	testlevel.Full(t)
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

// contend runs the workers, and those that get killed, and returns what the workers reported.
func (r *run) contend() []report {
	reports := make([]report, r.procs)
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() {
			var in bytes.Buffer
			cmd := r.worker(r.Context(), fmt.Sprint("w", i), &in)
			out, err := cmd.Output()
			if err == nil {
				err = json.Unmarshal(out, &reports[i])
			}
			if err != nil {
				r.Errorf("worker %d: %v", i, err)
			}
		})
	}
	if *kill > 0 {
		r.killSome(time.Now().Add(*runFor - 2*lease)) // the keys that the last one had are taken before the end
	}
	wg.Wait()
	return reports
}

// worker is a process of the soak that has not been started.
func (r *run) worker(ctx context.Context, name string, in *bytes.Buffer) *exec.Cmd {
	each := max(*goroutines/r.procs, 1)
	if err := json.NewEncoder(in).Encode(task{
		Name: name, Addr: r.server.Addr(), For: *runFor, Lease: lease, Goroutines: each, Hot: each, Keys: *keys, Together: r.procs,
	}); err != nil {
		r.Error(err)
	}
	return command(ctx, in)
}

// command is a process of this package that reads its task from in.
func command(ctx context.Context, in *bytes.Buffer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	return cmd
}

// killSome starts further processes like the others, one after another, and kills each at a random moment. It kills every
// second one while that process holds the hot key.
func (r *run) killSome(until time.Time) {
	rdb := r.server.Client(r)
	for {
		alive := *kill/4 + rand.N(*kill/4)
		if time.Now().Add(alive).After(until) {
			return
		}
		var in bytes.Buffer
		cmd := r.worker(r.Context(), fmt.Sprint("victim", r.kills), &in)
		if err := cmd.Start(); err != nil {
			r.Error(err)
			return
		}
		time.Sleep(alive)
		for r.kills%2 == 0 && !r.holdsHot(rdb, cmd.Process.Pid) && time.Now().Before(until) {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.kills++
		time.Sleep(*kill / 2)
	}
}

// holdsHot reports whether the process has the hot key.
func (r *run) holdsHot(rdb *redis.Client, pid int) bool {
	fields, _ := redistest.Fields(r.Context(), rdb, "holdfast:2:x:{"+hotKey+"}") // an error is ignored: the key changed its type meanwhile
	return fields["s"] == "h" && strings.Contains(fields["m"], fmt.Sprintf("\n%d\n", pid))
}
