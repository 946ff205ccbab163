package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/internal/redisd"
)

// rig has the two servers and their clients.
type rig struct {
	queue, locks *redisd.Server
	admin        map[*redisd.Server]*redis.Client
	client       *asynq.Client
	inspector    *asynq.Inspector
}

func newRig(ctx context.Context) (*rig, error) {
	r := &rig{admin: map[*redisd.Server]*redis.Client{}}
	for _, s := range []**redisd.Server{&r.queue, &r.locks} {
		var err error
		if *s, err = redisd.Start(); err == nil {
			r.admin[*s] = redis.NewClient(&redis.Options{Addr: (*s).Addr})
			err = await(ctx, r.admin[*s])
		}
		if err != nil {
			r.close()
			return nil, err
		}
	}
	r.inspector = asynq.NewInspector(asynq.RedisClientOpt{Addr: r.queue.Addr})
	return r, nil
}

// await returns when the server replies, or with an error after about 5 s.
func await(ctx context.Context, c *redis.Client) (err error) {
	for range 100 {
		if err = c.Ping(ctx).Err(); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

func (r *rig) close() {
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.inspector != nil {
		_ = r.inspector.Close()
	}
	for s, c := range r.admin {
		_ = c.Close()
		s.Stop()
	}
}

// flush empties both servers. It makes a new asynq client, because the old one remembers which
// queues exist.
func (r *rig) flush(ctx context.Context) error {
	if r.client != nil {
		_ = r.client.Close()
	}
	r.client = asynq.NewClient(asynq.RedisClientOpt{Addr: r.queue.Addr})
	return errors.Join(r.admin[r.queue].FlushAll(ctx).Err(), r.admin[r.locks].FlushAll(ctx).Err())
}

// executed returns how many commands the server has executed so far, including those that scripts
// call.
func (r *rig) executed(ctx context.Context, s *redisd.Server) (int64, error) {
	return strconv.ParseInt(r.info(ctx, s, "total_commands_processed"), 10, 64)
}

// info returns a field of INFO, or "" if the server does not have it.
func (r *rig) info(ctx context.Context, s *redisd.Server, field string) string {
	for line := range strings.Lines(r.admin[s].Info(ctx).Val()) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return value
		}
	}
	return ""
}

// enqueue enqueues t. asynq keeps it for an hour after its completion.
func (r *rig) enqueue(ctx context.Context, t task) error {
	payload, err := json.Marshal(t)
	if err == nil {
		_, err = r.client.EnqueueContext(ctx, asynq.NewTask("charge", payload), asynq.TaskID(t.ID), asynq.Retention(time.Hour))
	}
	return err
}
