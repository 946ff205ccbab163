package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// world has an asynq client, an Inspector and a Locker, normally on one Redis. Tests check the
// states of tasks with the Inspector.
type world struct {
	*testing.T
	rdb       *redis.Client
	lockRedis redis.UniversalClient
	locks     *lockcore.Locker
	heard     *locktest.Recorder
	client    *asynq.Client
	inspect   *asynq.Inspector
	servers   []*asynq.Server
	virtual   bool // in a bubble
}

// both runs story in a bubble, where time is virtual, and from level full also on a real Redis.
func both(t *testing.T, story func(*world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { inBubble(t, story) })
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t) // in real time
		t.Parallel()
		story(newWorld(t, redistest.Real(t).Client(t)))
	})
}

// bubbles bounds how many bubbles run at the same time. A bubble keeps a processor busy, so more of
// them would only delay the tests on real servers, whose requests have a time limit of a second.
var bubbles = make(chan struct{}, runtime.GOMAXPROCS(0))

func inBubble(t *testing.T, story func(*world)) {
	t.Helper()
	bubbles <- struct{}{}
	defer func() { <-bubbles }()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bubble(t).Client(t))
		w.virtual = true
		story(w)
	})
}

// bubble is redistest.Bubble for servers with parking. A waker ends by the timeouts of its
// Inspector's client, and virtual time stops at the end of the test, so the cleanup sleeps.
func bubble(t *testing.T) *redistest.Memory {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return redistest.Bubble(t)
}

// late reports whether took is more than most. In real time a busy machine may be the cause, so it
// counts in a bubble only.
func (w *world) late(took, most time.Duration) bool { return w.virtual && took > most }

func newWorld(t *testing.T, rdb *redis.Client) *world {
	t.Helper()
	return newWorldOn(t, rdb, rdb)
}

// newWorldOn is newWorld with the locks on another Redis.
func newWorldOn(t *testing.T, rdb *redis.Client, lockRedis redis.UniversalClient) *world {
	t.Helper()
	w := &world{T: t, rdb: rdb, lockRedis: lockRedis, heard: new(locktest.Recorder)}
	w.client, w.inspect = asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	locks, err := lockcore.New(lockRedis, lockcore.Options{Observer: w.heard, NoGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	w.locks = locks
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// quick returns a configuration in which a retry does not take asynq's 5 s.
func quick() asynq.Config {
	return asynq.Config{
		Concurrency: 8, TaskCheckInterval: 100 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond, Logger: silent{},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}
}

// serve starts a server. It is shut down when the test ends, before the Locker is closed.
func (w *world) serve(cfg asynq.Config, h asynq.Handler) *asynq.Server {
	w.Helper()
	srv := asynq.NewServerFromRedisClient(w.rdb, cfg)
	if err := srv.Start(h); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(srv.Shutdown)
	w.servers = append(w.servers, srv)
	return srv
}

// enqueue enqueues a task that asynq keeps for an hour after it is completed.
func (w *world) enqueue(kind, payload string, opts ...asynq.Option) *asynq.TaskInfo {
	w.Helper()
	info, err := w.client.Enqueue(asynq.NewTask(kind, []byte(payload)), append([]asynq.Option{asynq.Retention(time.Hour)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	return info
}

// until waits until ok returns true for the task, for at most 2 min, in a bubble 5 min.
func (w *world) until(task *asynq.TaskInfo, ok func(*asynq.TaskInfo) bool) *asynq.TaskInfo {
	w.Helper()
	var info *asynq.TaskInfo
	if !w.eventually(func() bool {
		var err error
		if info, err = w.inspect.GetTaskInfo(task.Queue, task.ID); err != nil {
			w.Fatal(err)
		}
		return ok(info)
	}) {
		w.Fatalf("task %s of type %q is still %v, retried %d, last error %q", info.ID, info.Type, info.State, info.Retried, info.LastErr)
	}
	return info
}

// vanishes waits until asynq has deleted the task.
func (w *world) vanishes(task *asynq.TaskInfo) {
	w.Helper()
	if !w.eventually(func() bool {
		_, err := w.inspect.GetTaskInfo(task.Queue, task.ID)
		return errors.Is(err, asynq.ErrTaskNotFound)
	}) {
		w.Fatal("asynq still has the task")
	}
}

// eventually calls ok until it returns true, for at most 2 min. In a bubble it is 5 min of virtual
// time. Both are less than the 10 min after which some tasks come back by themselves. The calls are
// 10 ms apart and later 100 ms, because each runs a script, and most of the CPU time of these tests
// is that of scripts.
func (w *world) eventually(ok func() bool) bool {
	w.Helper()
	give, pause := time.After(2*time.Minute), 10*time.Millisecond
	if w.virtual { // tasks that come back by themselves may find the key busy, and are parked again
		give = time.After(5 * time.Minute)
	}
	for !ok() {
		select {
		case <-time.After(pause):
			pause = min(pause+pause/4, 100*time.Millisecond)
		case <-give:
			return false
		}
	}
	return true
}

// waits waits until a call of the Locker has begun to wait for a lock.
func (w *world) waits() {
	w.Helper()
	if !w.eventually(func() bool { return len(locktest.EventsOf[event.Waiting](w.heard)) > 0 }) {
		w.Error("no call waits")
	}
}

// ends waits until the task is completed or archived, and checks its state.
func (w *world) ends(task *asynq.TaskInfo, want asynq.TaskState) *asynq.TaskInfo {
	w.Helper()
	info := w.until(task, func(i *asynq.TaskInfo) bool {
		return i.State == asynq.TaskStateCompleted || i.State == asynq.TaskStateArchived
	})
	if info.State != want {
		w.Errorf("task of type %q ended %v, want %v; last error %q", info.Type, info.State, want, info.LastErr)
	}
	return info
}

// noRetry checks that the task has used up no retry. On a real server asynq counts a late reply of
// Redis as a failure, and a busy machine may cause one. So there one retry is only logged.
func (w *world) noRetry(info *asynq.TaskInfo) {
	w.Helper()
	if info.Retried == 0 {
		return
	}
	text := fmt.Sprintf("task %s has %d retries used up, last error %q", info.ID, info.Retried, info.LastErr)
	if !w.virtual && info.Retried == 1 {
		w.Log(text)
		return
	}
	w.Error(text)
}

// hold acquires an exclusive key as another holder.
func (w *world) hold(key string) *lockcore.Lease {
	w.Helper()
	lease, err := w.locks.Acquire(lockcore.WithTask(context.Background(), "the-holder"), key, lockcore.Terms{Wait: time.Minute}) // a busy machine may delay the reply
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// gauge counts the runs of a handler, and the greatest number at the same time.
type gauge struct {
	mu              sync.Mutex
	runs, now, most int
	idle            chan struct{} // closed when no run is left; nil before the first
}

func (g *gauge) enter() (run int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == 0 {
		g.idle = make(chan struct{})
	}
	g.runs++
	g.now++
	g.most = max(g.most, g.now)
	return g.runs
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now--; g.now == 0 {
		close(g.idle)
	}
}

// counts waits until no run is left, and returns the counts.
func (g *gauge) counts() (runs, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.now > 0 {
		idle := g.idle
		g.mu.Unlock()
		<-idle
		g.mu.Lock()
	}
	return g.runs, g.most
}

// handler returns a handler that counts its runs and calls fn with the number of the run, from 1.
func (g *gauge) handler(fn func(ctx context.Context, run int, t *asynq.Task) error) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		run := g.enter()
		defer g.leave()
		return fn(ctx, run, t)
	})
}

// stubborn works for d and ignores every ctx.
func stubborn(d time.Duration) { <-time.After(d) }

func nothing(context.Context, int, *asynq.Task) error { return nil }

// byPayload makes a key of the payload.
func byPayload(_ context.Context, t *asynq.Task) (guard.Key, error) {
	return guard.Key{Class: "test", ID: string(t.Payload())}, nil
}

// complaints is an asynq.ErrorHandler that remembers.
type complaints struct {
	mu   sync.Mutex
	list []error
}

func (c *complaints) HandleError(_ context.Context, _ *asynq.Task, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, err)
}

func (c *complaints) all() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

type silent struct{}

func (silent) Debug(...any)      {}
func (silent) Info(...any)       {}
func (silent) Warn(...any)       {}
func (silent) Error(...any)      {}
func (silent) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

var errBoom = errors.New("boom")
