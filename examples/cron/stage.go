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
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// stage is the environment of the chapters: a Redis, and a clock for the output.
type stage struct {
	name   string // part of every key of the story
	addr   string
	rdb    *redis.Client
	memory *miniredis.Miniredis // nil with a Redis of the user
	began  time.Time

	mu    sync.Mutex // guards the fields below
	out   io.Writer
	acts  int
	runs  map[string]int // by tick
	taken int
}

func newStage(ctx context.Context, addr string, out io.Writer) (*stage, error) {
	s := &stage{name: "holdfast-story-" + rand.Text()[:12], addr: addr, began: time.Now(), out: out}
	where := "Redis at " + addr
	if addr == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, err
		}
		s.memory, s.addr, where = m, m.Addr(), "a Redis inside this process"
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr})
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", addr, err), s.disconnect())
	}
	s.say("three instances on %s: A's clock is right, B's is 0.6 s ahead, C's is 0.6 s behind", where)
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
	return errors.Join(append(errs, keys.Err(), s.disconnect())...)
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

// report is the job. It takes no time.
func (s *stage) report(_ context.Context, in *instance, t cronmw.Tick) error {
	s.mu.Lock()
	s.runs[t.String()]++
	nth := s.runs[t.String()]
	s.mu.Unlock()
	if nth == 1 {
		s.say("  %s runs %s", in.name, clock(t))
	} else {
		s.say("  %s runs %s, run number %d", in.name, clock(t), nth)
	}
	return nil
}

func clock(t cronmw.Tick) string { return t.Name + " of " + t.Time.UTC().Format(time.TimeOnly) }

// act runs the three instances for a while, and returns the counts.
func (s *stage) act(ctx context.Context, d time.Duration, play func(context.Context, *instance) error) (row, error) {
	s.mu.Lock()
	s.runs, s.taken = map[string]int{}, 0
	s.acts++
	prefix := fmt.Sprintf("%s-%d", s.name, s.acts)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	errs := make([]error, len(cast))
	var wg sync.WaitGroup
	for i, role := range cast {
		wg.Go(func() {
			in, err := role.enter(s, prefix)
			if err == nil {
				err = errors.Join(play(ctx, in), in.leave())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := row{ticks: len(s.runs), takeovers: s.taken}
	for _, n := range s.runs {
		r.runs += n
		r.most = max(r.most, n)
	}
	return r, errors.Join(errs...)
}
