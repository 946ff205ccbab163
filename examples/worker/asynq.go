package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
)

// act is a chapter in which workers process the tasks of a queue.
type act struct {
	queue    string
	workers  int // 0: one
	work     func(*worker) (asynq.Config, asynq.Handler)
	tasks    []*asynq.Task
	together bool // all tasks are enqueued at once, not one after another has ended
	silent   bool
	cut      bool // no worker reaches the last server of the majority
}

// on returns the act on a stage.
func (a act) on(s *stage.Stage) *scene {
	a.queue = s.Name + "-" + a.queue
	return &scene{act: a, stage: s, inspector: asynq.NewInspectorFromRedisClient(s.Redis)}
}

// scene is what the workers of an act share.
type scene struct {
	act
	counter
	stage     *stage.Stage
	inspector *asynq.Inspector
	began     time.Time
	charges   []charge // guarded by the counter's mu
}

// worker is an asynq server with a Locker, like a process.
type worker struct {
	*scene
	name   string
	locks  *lockcore.Locker
	config asynq.Config
}

// play enqueues the tasks and waits for their ends. The row has the state of the last task, or of
// the first one that failed.
func (s *scene) play(ctx context.Context) (row, error) {
	client, ids := asynq.NewClientFromRedisClient(s.stage.Redis), make([]string, len(s.tasks))
	enqueue := func(i int) error {
		info, err := client.EnqueueContext(ctx, s.tasks[i], asynq.Queue(s.queue), asynq.Retention(time.Hour))
		if err == nil {
			ids[i] = info.ID
		}
		return err
	}
	for i := range s.tasks {
		if err := enqueue(i); err != nil {
			return row{}, err
		}
		if !s.together {
			break
		}
	}
	s.began = time.Now()
	for i := range max(s.workers, 1) {
		stop, err := s.serve(string(rune('A' + i)))
		if err != nil {
			return row{}, err
		}
		defer stop()
	}
	var state asynq.TaskState
	for i := range s.tasks {
		if ids[i] == "" {
			if err := enqueue(i); err != nil {
				return row{}, err
			}
		}
		var err error
		if state, err = s.await(ctx, ids[i]); err != nil {
			return row{}, err
		} else if state == asynq.TaskStateArchived {
			return s.row(state), nil
		}
	}
	return s.row(state), nil
}

// serve starts a worker, with retries after a fraction of a second instead of asynq's 5 s and more.
// stop ends it.
func (s *scene) serve(name string) (stop func(), err error) {
	node, err := s.stage.Node(lockcore.Options{Observer: narrator{s}})
	if err != nil {
		return nil, err
	}
	if last := len(node.Masters) - 1; s.cut {
		node.Masters[last].Cut()
		s.say("worker %s has no connection to %s", name, s.stage.Quorum[last])
	}
	config, handler := s.work(&worker{scene: s, name: name, locks: node.Locks, config: asynq.Config{
		Concurrency:              2,
		Queues:                   map[string]int{s.queue: 1},
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		LogLevel:                 asynq.FatalLevel, // say prints the errors
		ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, _ *asynq.Task, err error) {
			retried, _ := asynq.GetRetryCount(ctx)
			s.say("asynq gives up attempt %d: %v", retried+1, err)
		}),
	}})
	srv := asynq.NewServerFromRedisClient(s.stage.Redis, config)
	return srv.Shutdown, srv.Start(handler)
}

// await waits until asynq has finished a task.
func (s *scene) await(ctx context.Context, id string) (asynq.TaskState, error) {
	for {
		info, err := s.inspector.GetTaskInfo(s.queue, id)
		if err != nil {
			return 0, err
		}
		if info.State == asynq.TaskStateArchived || info.State == asynq.TaskStateCompleted {
			result := ""
			if len(info.Result) > 0 {
				result = fmt.Sprintf(", result %q", info.Result)
			}
			s.say("asynq: task %s is %s%s", id, info.State, result)
			return info.State, nil
		}
		if err := stage.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (s *scene) say(format string, args ...any) {
	if !s.silent {
		s.stage.Say(format, args...)
	}
}

// narrator is an Observer that prints what happens to keys. In production, use a log or package
// tracing.
type narrator struct{ *scene }

type keyOf struct{}

func (n narrator) Start(ctx context.Context, a event.Acquisition) context.Context {
	return context.WithValue(ctx, keyOf{}, strings.ReplaceAll(a.Key, n.stage.Name+"-", ""))
}

func (n narrator) Event(ctx context.Context, e event.Event) {
	key := ctx.Value(keyOf{})
	switch e := e.(type) {
	case event.Waiting:
		n.say("  %v is held by %v: the task waits", key, e.Holder)
	case event.Refused:
		if errors.Is(e.Err, lockcore.ErrBusy) {
			n.say("  %v is still busy: the task comes back later, no retry is used up", key)
		}
	case event.Replayed:
		n.say("  %v is done already: replayed, not run", key)
	case event.ServerFailed:
		n.say("  %s does not reply: the others are a majority", e.Server)
	case event.Lost:
		n.say("  %v was lost: %v", key, e.Cause)
	}
}

func (narrator) Traceparent(context.Context) string { return "" }

// counter counts the runs of a handler, and the runs at the same time.
type counter struct {
	mu              sync.Mutex // guards the numbers
	runs, now, most int
	open            sync.WaitGroup // the runs under way
}

func (c *counter) enter() (run, now int) {
	c.open.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.now++
	c.most = max(c.most, c.now)
	return c.runs, c.now
}

func (c *counter) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	c.open.Done()
}

// row is the result of an act.
type row struct {
	runs, most int
	state      string
}

func (r row) String() string { return fmt.Sprintf("%d\t%d\t%s", r.runs, r.most, r.state) }

// row waits until all runs have returned, also those that asynq has given up. Then no run begins,
// because the tasks have ended.
func (c *counter) row(state asynq.TaskState) row {
	c.open.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return row{c.runs, c.most, state.String()}
}
