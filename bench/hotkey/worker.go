package hotkey

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Worker is an asynq server with a policy. It ends with its process.
type Worker struct {
	server  *asynq.Server
	handler asynq.Handler

	mu    sync.Mutex
	tally Tally
}

// NewWorker returns a worker for the queue on the Redis at queue. Its locks are on rdb.
func NewWorker(policy, queue string, rdb redis.UniversalClient, l Load) (*Worker, error) {
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return nil, err
	}
	w := &Worker{}
	opt := asynq.RedisClientOpt{Addr: queue}
	cfg := asynq.Config{Concurrency: Workers, TaskCheckInterval: l.Check, LogLevel: asynq.FatalLevel}
	exclusive := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account"), asynqmw.ExclusiveOptions{})
	h := asynq.Handler(asynq.HandlerFunc(w.run))
	switch policy {
	case Wait:
		h, cfg = exclusive(h), asynqmw.Configure(cfg)
	case Park:
		h, cfg = exclusive(h), asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: asynq.NewInspector(opt)})
	}
	w.server, w.handler = asynq.NewServer(opt, cfg), w.delivered(h)
	return w, nil
}

// Start makes the worker process tasks.
func (w *Worker) Start() error { return w.server.Start(w.handler) }

// Tally returns what the worker has done so far.
func (w *Worker) Tally() Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
}

// delivered counts the deliveries before any middleware.
func (w *Worker) delivered(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		if p := payload(t); p.Account == hot {
			w.mu.Lock()
			w.tally.Deliveries++
			w.mu.Unlock()
		}
		return next.ProcessTask(ctx, t)
	})
}

func (w *Worker) run(ctx context.Context, t *asynq.Task) error {
	p, began := payload(t), time.Now()
	select {
	case <-time.After(p.Hold):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	id, _ := asynq.GetTaskID(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Account == id && p.Hold == backlogHold {
		w.tally.Backlog++
		return nil
	}
	w.tally.Runs = append(w.tally.Runs, Run{id, p.Account, began.UnixNano(), time.Now().UnixNano()})
	return nil
}

func payload(t *asynq.Task) (p task) {
	if err := json.Unmarshal(t.Payload(), &p); err != nil {
		panic(err) // this package wrote it
	}
	return p
}
