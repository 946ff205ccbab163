// Package kills is the load of the scenario kills: a producer triggers rebuilds of projections, and
// workers run them until they are killed. It compares asynq under asynqmw.Latest with BullMQ under
// keepLastIfActive, whose processes are in worker.mjs.
//
// A trigger increments the counter of a projection, and then enqueues a task. A run reads the counter,
// works, and writes it into a journal. So the last value of a projection in the journal must be its
// counter. A projection is triggered about four times within a second, and then no more, so that each
// of them shows whether its last trigger was lost.
package kills

import (
	"context"
	_ "embed" // the files of BullMQ
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The libraries. Others are asynq with asynqmw.Latest.
const (
	BullMQ  = "bullmq"
	Careful = BullMQ + "+careful" // with a maxStalledCount of 1,000
)

// Env is the variable with the job of a process.
const Env = "HOLDFAST_BENCH_KILLS"

// job is what a process does, as JSON.
type job struct {
	Addr    string `json:"addr"`
	Role    string `json:"role"`
	Stalled int    `json:"stalled"` // BullMQ's maxStalledCount
}

// The roles of processes. The others are the events of the journal at which a worker kills itself.
const (
	producer = "producer"
	moment   = "moment" // a worker kills itself at a random moment
	immortal = "immortal"
)

// The journal is a list in Redis. Each line has the id of a process, the event, a projection and the
// value that was written.
const (
	journal = "data:journal"
	counts  = "data:counts" // a hash with the counters
	began   = "began"
	ended   = "ended"
	failed  = "failed"
	killed  = "killed" // written by the parent when the process has ended
)

const (
	workers   = 4
	quietTime = 4 * time.Minute // longer than asynq delays a task whose worker was killed three times
)

var (
	//go:embed bullmq/package.json
	bullmqPackage []byte
	//go:embed bullmq/worker.mjs
	bullmqWorker []byte
)

// crew starts the processes of one run.
type crew struct {
	job     job
	rdb     *redis.Client
	command []string
	dir     string
	env     string
}

// Run kills n workers of a library, and returns what they did before and after that. rdb is a Redis
// without other data. The processes of holdfast are this program with env, which calls Child.
func Run(ctx context.Context, library string, rdb *redis.Client, env string, n int) (t Tally, err error) {
	program, err := os.Executable()
	if err != nil {
		return t, err
	}
	c := crew{job{Addr: rdb.Options().Addr, Stalled: 1}, rdb, []string{program}, "", env}
	if library == Careful {
		c.job.Stalled = 1_000
	}
	if strings.HasPrefix(library, BullMQ) {
		c.command = []string{"node", "worker.mjs"}
		c.dir, err = install(ctx)
		defer os.RemoveAll(c.dir)
		if err != nil {
			return t, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills all processes
	triggers, stop, err := c.start(ctx, producer)
	if err != nil {
		return t, err
	}
	done := make(chan error)
	for i := range workers {
		go func() { done <- c.kill(ctx, (n+i)/workers) }()
	}
	for range workers {
		err = errors.Join(err, <-done)
	}
	err = errors.Join(err, sleep(ctx, 2*time.Second), stop.Close(), triggers.Wait())
	if err != nil {
		return t, err
	}
	stray, err1 := c.drain(ctx)
	lines, err2 := rdb.LRange(ctx, journal, 0, -1).Result()
	counters, err3 := rdb.HGetAll(ctx, counts).Result()
	t = judge(lines, counters)
	t.Stray = stray
	return t, errors.Join(err1, err2, err3)
}

// install installs BullMQ into a temporary directory.
func install(ctx context.Context) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "holdfast-bench-*"); err != nil {
		return "", err
	}
	err1 := os.WriteFile(filepath.Join(dir, "package.json"), bullmqPackage, 0o600)
	err2 := os.WriteFile(filepath.Join(dir, "worker.mjs"), bullmqWorker, 0o600)
	npm := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir, npm.Stderr = dir, os.Stderr
	return dir, errors.Join(err1, err2, npm.Run())
}

// start starts a process, which ends with in.
func (c crew) start(ctx context.Context, role string) (cmd *exec.Cmd, in io.Closer, err error) {
	c.job.Role = role
	text, err := json.Marshal(c.job)
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, c.command[0], c.command[1:]...)
	cmd.Dir, cmd.Stderr, cmd.Env = c.dir, os.Stderr, append(os.Environ(), c.env, Env+"="+string(text))
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	return cmd, in, cmd.Start()
}

// kill starts n workers, one after another, which kill themselves, and then one that runs until ctx
// ends.
func (c crew) kill(ctx context.Context, n int) error {
	for i := range n {
		cmd, _, err := c.start(ctx, []string{began, ended, moment}[i%3])
		if err != nil {
			return err
		}
		if err := cmd.Wait(); ctx.Err() != nil || err == nil || err.Error() != "signal: killed" {
			return fmt.Errorf("bench: a worker has ended: %w", errors.Join(err, context.Cause(ctx)))
		}
		if err := c.rdb.RPush(ctx, journal, fmt.Sprint(cmd.Process.Pid, " ", killed, " - -")).Err(); err != nil {
			return err
		}
	}
	cmd, _, err := c.start(ctx, immortal)
	if err == nil {
		go func() { _ = cmd.Wait() }() // ends with ctx
	}
	return err
}

// drain waits until no key names a task or a projection, or their number no longer changes. It returns
// that number. Such names have a digit, no others do. Keys with a TTL do not count.
func (c crew) drain(ctx context.Context) (stray int, err error) {
	for before, since := 0, time.Now(); ; before = stray {
		names, err := c.rdb.Keys(ctx, "*[0-9]*").Result()
		if err != nil {
			return 0, err
		}
		stray = 0
		for _, name := range names {
			if ttl, err := c.rdb.PTTL(ctx, name).Result(); err != nil {
				return 0, err
			} else if ttl == -1 {
				stray++
			}
		}
		if stray != before {
			since = time.Now()
		}
		if stray == 0 || time.Since(since) > quietTime {
			return stray, nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return 0, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
