package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/internal/redisd"
)

// server is the Redis of the measurements.
type server struct {
	addr  string
	admin *redis.Client
	own   bool // it was started here: it is flushed between runs and stopped at the end
	stop  func()

	others []*server // the other servers, if this is the first one of a Cluster or of several masters
}

// startServer starts a redis-server without persistence and with args, or uses the one at addr.
func startServer(ctx context.Context, addr string, args ...string) (*server, error) {
	s := &server{addr: addr, stop: func() {}}
	if addr == "" {
		own, err := redisd.Start(args...)
		if err != nil {
			return nil, fmt.Errorf("bench: %w; install one, or name a server with -redis", err)
		}
		s.addr, s.own, s.stop = own.Addr, true, own.Stop
	}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr})
	var err error
	for range 100 {
		if err = s.admin.Ping(ctx).Err(); err == nil || ctx.Err() != nil || !s.own {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("bench: no Redis at %s: %w", s.addr, err)
	}
	return s, nil
}

func (s *server) close() {
	for _, o := range s.others {
		o.close()
	}
	if s.admin != nil {
		_ = s.admin.Close()
	}
	s.stop()
}

// clean removes the data of a run. On the server that -redis names, it does nothing: the data
// expires.
func (s *server) clean(ctx context.Context) error {
	if !s.own {
		return nil
	}
	var err error
	for _, node := range s.nodes() {
		err = errors.Join(err, node.admin.FlushAll(ctx).Err())
	}
	return err
}

// cpu returns the CPU time that all nodes have used so far, including the time for the INFO
// commands of this program.
func (s *server) cpu(ctx context.Context) (all time.Duration, err error) {
	for _, node := range s.nodes() {
		info, err := node.info(ctx, "cpu")
		if err != nil {
			return 0, err
		}
		user, err1 := strconv.ParseFloat(info["used_cpu_user"], 64)
		sys, err2 := strconv.ParseFloat(info["used_cpu_sys"], 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		all += time.Duration((user + sys) * float64(time.Second))
	}
	return all, nil
}

func (s *server) version(ctx context.Context) string {
	info, err := s.info(ctx, "server")
	if err != nil {
		return "unknown"
	}
	return info["redis_version"]
}

func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if name, value, ok := strings.Cut(sc.Text(), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}
