package cronmw_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

const (
	instanceEnv = "HOLDFAST_CRON_INSTANCE"
	instances   = 4
	runFor      = 30 * time.Second
	upIn        = 8 * time.Second // longer than a process needs to be ready for a tick, also on a busy machine
)

// order is the JSON value that an instance gets in its environment.
type order struct {
	Addr  string
	Skew  time.Duration
	Until time.Time // zero: the parent sends it when all processes are ready
	Panic bool
	Once  time.Time // the only tick of a job that hangs; zero: a short job with a tick every second
}

// The clocks of processes on a real server differ by up to a second, and a tick is due every
// second. Each tick runs once.
// Shows: K1
func TestRealProcesses(t *testing.T) {
	testlevel.Campaign(t)
	server := redistest.Real(t)
	rdb := server.Client(t)
	var wg sync.WaitGroup
	for i := range instances {
		wg.Go(func() {
			skew := time.Duration(i)*time.Second/(instances-1) - 500*time.Millisecond
			out, err := child(t, order{Addr: server.Addr(), Skew: skew}).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for range instances {
		if err := rdb.BLPop(t.Context(), time.Minute, "ready").Err(); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	end := begin.Add(runFor)
	for range instances {
		if err := rdb.RPush(t.Context(), "until", end.Format(time.RFC3339Nano)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	ticks := 0
	// All processes ran their jobs from 3 s after the beginning to 1 s before the end.
	for at := begin.Truncate(time.Second).Add(3 * time.Second); at.Before(end.Add(-time.Second)); at = at.Add(time.Second) {
		ticks++
		if n, err := rdb.Get(context.Background(), runsOf(at)).Int(); err != nil || n != 1 {
			t.Errorf("the tick %v ran %d times: %v", at.UTC(), n, err)
		}
	}
	keys, err := rdb.Keys(context.Background(), runsOf(time.Time{})[:5]+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if n, err := rdb.Get(context.Background(), k).Int(); err != nil || n != 1 {
			t.Errorf("%s ran %d times: %v", k, n, err)
		}
	}
	if ticks == 0 {
		t.Error("inconclusive: no tick was checked")
	}
	t.Logf("%d ticks ran, %d of them were expected", len(keys), ticks)
}

// The process that runs a tick is killed with SIGKILL. One of the others runs the tick again.
// Shows: K2
func TestRealKilled(t *testing.T) {
	testlevel.Campaign(t)
	server := redistest.Real(t)
	tick := time.Now().Add(upIn).Truncate(time.Second)
	winners := make(chan *exec.Cmd, instances)
	for range instances {
		cmd := child(t, order{Addr: server.Addr(), Until: tick.Add(time.Minute), Once: tick})
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		go func() { // ends with the process
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "run ") {
					winners <- cmd
				}
			}
		}()
	}
	winner := func() *exec.Cmd {
		select {
		case cmd := <-winners:
			return cmd
		case <-time.After(time.Until(tick.Add(time.Minute))): // then the instances end
			t.Fatal("no instance runs the tick")
			return nil
		}
	}
	first := winner()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if second := winner(); second == first {
		t.Error("the dead process runs it again")
	}
	select {
	case <-winners:
		t.Error("a second takeover")
	case <-time.After(3 * time.Second): // longer than a lease
	}
}

// A job without OnResult panics. The panic ends the process, like a panic of any goroutine.
func TestRealPanic(t *testing.T) {
	testlevel.Full(t)
	tick := time.Now().Add(upIn).Truncate(time.Second)
	out, err := child(t, order{Addr: redistest.Real(t).Addr(), Until: tick.Add(time.Minute), Once: tick, Panic: true}).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "boom") || !strings.Contains(string(out), "real_test.go") {
		t.Errorf("%v\n%s", err, out)
	}
}

func child(t *testing.T, o order) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), instanceEnv+"="+string(b))
	return cmd
}

func runsOf(at time.Time) string { return "runs:" + at.UTC().Format(time.RFC3339) }

// instance is the main function of a child process.
func instance() int {
	var o order
	err := json.Unmarshal([]byte(os.Getenv(instanceEnv)), &o)
	if err == nil {
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (o order) run() error {
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr})
	defer func() { _ = rdb.Close() }()
	locks, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: 2 * time.Second}})
	if err != nil {
		return err
	}
	if o.Until.IsZero() {
		if o.Until, err = together(rdb); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), o.Until)
	defer cancel()
	js, err := cronmw.New(locks, cronmw.Options{Now: func() time.Time { return time.Now().Add(o.Skew) }})
	if err != nil {
		return err
	}
	if !o.Once.IsZero() {
		err = js.Add("hangs", o.Once.UTC().Format("5 4 15 2 1 *"), cronmw.Job{Standby: true}, func(ctx context.Context, t cronmw.Tick) error {
			fmt.Println("run", t)
			if o.Panic {
				panic(errBoom)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	} else {
		err = js.Every("report", time.Second, cronmw.Job{}, func(ctx context.Context, t cronmw.Tick) error {
			return rdb.Incr(ctx, runsOf(t.Time)).Err()
		})
	}
	if err == nil {
		err = js.Run(ctx)
	}
	if err != nil {
		return err
	}
	return locks.Close(context.Background())
}

// together waits until all processes are ready. It returns the time until which they run.
func together(rdb *redis.Client) (until time.Time, err error) {
	ctx := context.Background()
	if err := rdb.RPush(ctx, "ready", 1).Err(); err != nil {
		return until, err
	}
	reply, err := rdb.BLPop(ctx, time.Minute, "until").Result()
	if err != nil {
		return until, err
	}
	return time.Parse(time.RFC3339Nano, reply[1])
}
