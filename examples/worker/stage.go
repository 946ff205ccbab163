package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

// stage is the environment of the chapters: a Redis, asynq's client and Inspector, and a clock for
// the output.
type stage struct {
	name    string // part of every key of the story
	rdb     *redis.Client
	memory  *miniredis.Miniredis // nil with a Redis of the user
	client  *asynq.Client
	inspect *asynq.Inspector
	queues  []string
	began   time.Time

	mu  sync.Mutex // guards the fields below
	out io.Writer
}

func newStage(ctx context.Context, addr string, out io.Writer) (*stage, error) {
	s := &stage{name: "holdfast-story-" + rand.Text()[:12], began: time.Now(), out: out}
	where := "Redis at " + addr
	if addr == "" {
		m, err := miniredis.Run()
		if err != nil {
			return nil, err
		}
		s.memory, addr, where = m, m.Addr(), "a Redis inside this process"
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: addr})
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", addr, err), s.disconnect())
	}
	s.client, s.inspect = asynq.NewClientFromRedisClient(s.rdb), asynq.NewInspectorFromRedisClient(s.rdb)
	s.say("asynq on %s", where)
	return s, nil
}

// close deletes the keys of the story.
func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	keys := s.rdb.Scan(ctx, 0, "*"+s.name+"*", 1000).Iterator()
	for keys.Next(ctx) {
		errs = append(errs, s.rdb.Del(ctx, keys.Val()).Err())
	}
	errs = append(errs, keys.Err())
	for _, q := range s.queues {
		errs = append(errs, s.rdb.SRem(ctx, "asynq:queues", q).Err())
	}
	return errors.Join(append(errs, s.disconnect())...)
}

func (s *stage) disconnect() error {
	err := s.rdb.Close()
	if s.memory != nil {
		s.memory.Close()
	}
	return err
}

// say prints a line with the time since the start. An empty format prints an empty line.
func (s *stage) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if format == "" {
		fmt.Fprintln(s.out)
		return
	}
	fmt.Fprintf(s.out, "%6.2f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// queue returns the name of a queue that only this chapter uses.
func (s *stage) queue(chapter string) string {
	q := s.name + "-" + chapter
	s.queues = append(s.queues, q)
	return q
}

// config returns an asynq configuration with retries after a fraction of a second, instead of
// asynq's 5 s and more.
func (s *stage) config(queue string) asynq.Config {
	return asynq.Config{
		Concurrency:              2,
		Queues:                   map[string]int{queue: 1},
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		LogLevel:                 asynq.FatalLevel, // the story prints the errors
		ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, _ *asynq.Task, err error) {
			retried, _ := asynq.GetRetryCount(ctx)
			s.say("asynq gives up attempt %d: %v", retried+1, err)
		}),
	}
}

// serve starts an asynq server for one type of task. stop ends it.
func (s *stage) serve(cfg asynq.Config, kind string, h asynq.Handler) (stop func(), err error) {
	mux := asynq.NewServeMux()
	mux.Handle(kind, h)
	srv := asynq.NewServerFromRedisClient(s.rdb, cfg)
	return srv.Shutdown, srv.Start(mux)
}

// locker returns a Locker and a function that closes it.
func (s *stage) locker(o lockcore.Observer) (*lockcore.Locker, func(), error) {
	locks, err := lockcore.New(s.rdb, lockcore.Options{Prefix: s.name, Observer: o})
	if err != nil {
		return nil, nil, err
	}
	return locks, func() {
		if err := locks.Close(context.Background()); err != nil {
			s.say("%v", err)
		}
	}, nil
}

// enqueue adds a task that asynq keeps for a while after it is completed.
func (s *stage) enqueue(queue, id string, t *asynq.Task, opts ...asynq.Option) error {
	_, err := s.client.Enqueue(t, append(opts, asynq.Queue(queue), asynq.TaskID(id), asynq.Retention(time.Hour))...)
	return err
}

// await waits until asynq has finished the tasks. It returns the state of the last one, or of the
// first that failed.
func (s *stage) await(ctx context.Context, queue string, ids ...string) (state string, err error) {
	for _, id := range ids {
		info, err := s.ended(ctx, queue, id)
		if err != nil {
			return "", err
		}
		state = info.State.String()
		if len(info.Result) > 0 {
			s.say("asynq: task %s is %s, result %q", id, state, info.Result)
		} else {
			s.say("asynq: task %s is %s", id, state)
		}
		if info.State == asynq.TaskStateArchived {
			break
		}
	}
	return state, nil
}

func (s *stage) ended(ctx context.Context, queue, id string) (*asynq.TaskInfo, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := s.inspect.GetTaskInfo(queue, id)
		if err != nil || info.State == asynq.TaskStateArchived || info.State == asynq.TaskStateCompleted {
			return info, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// finish enqueues a task and waits for its end.
func (s *stage) finish(ctx context.Context, queue, id string, t *asynq.Task, opts ...asynq.Option) (string, error) {
	if err := s.enqueue(queue, id, t, opts...); err != nil {
		return "", err
	}
	return s.await(ctx, queue, id)
}
