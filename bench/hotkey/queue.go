package hotkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// most is the longest time of a run.
const most = time.Minute

// Queue is the queue of a run, on a Redis that has no other data. Use a new one for each run, because
// a client of asynq remembers which queues exist.
type Queue struct {
	load      Load
	client    *asynq.Client
	inspector *asynq.Inspector
	behind    int // backlog tasks that were enqueued
}

// NewQueue returns a queue on the Redis at addr, with the tasks of the load.
func NewQueue(ctx context.Context, addr string, l Load) (*Queue, error) {
	opt := asynq.RedisClientOpt{Addr: addr}
	q := &Queue{load: l, client: asynq.NewClient(opt), inspector: asynq.NewInspector(opt)}
	for _, t := range tasks() {
		if err := q.enqueue(ctx, t, asynq.Retention(time.Hour)); err != nil {
			return nil, errors.Join(err, q.Close())
		}
	}
	if err := q.addBacklog(ctx, l.Backlog); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// Close closes the clients.
func (q *Queue) Close() error { return errors.Join(q.client.Close(), q.inspector.Close()) }

func (q *Queue) enqueue(ctx context.Context, t task, options ...asynq.Option) error {
	b, err := json.Marshal(t)
	if err == nil {
		_, err = q.client.EnqueueContext(ctx, asynq.NewTask("charge", b), append(options, asynq.TaskID(t.ID))...)
	}
	return err
}

// addBacklog enqueues n tasks. asynq does not keep them after their completion.
func (q *Queue) addBacklog(ctx context.Context, n int) error {
	for range n {
		account := fmt.Sprint(backlog, q.behind)
		if err := q.enqueue(ctx, task{account, account, backlogHold}); err != nil {
			return err
		}
		q.behind++
	}
	return nil
}

// Await returns when the tasks of the load, without its backlog, are completed, and after a minute
// at the latest. left is the number of tasks that are not completed. failed counts retries that were
// used up.
func (q *Queue) Await(ctx context.Context) (left, failed int, err error) {
	for late := time.Now().Add(most); ; time.Sleep(20 * time.Millisecond) {
		info, err := q.inspector.GetQueueInfo("default")
		if err != nil {
			return 0, 0, err
		}
		left = Tasks - info.Completed // only tasks of the load have a retention
		if left == 0 || ctx.Err() != nil || time.Now().After(late) {
			return left, info.FailedTotal, context.Cause(ctx)
		}
		if q.load.Standing {
			if err := q.addBacklog(ctx, q.load.Backlog-info.Pending); err != nil {
				return 0, 0, err
			}
		}
	}
}
