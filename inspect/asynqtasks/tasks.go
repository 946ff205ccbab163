// Package asynqtasks finds the asynq tasks with an ID, so that the page of package inspect explains why a
// task waits:
//
//	inspect.New(locks, inspect.Options{Tasks: asynqtasks.Find(asynq.NewInspectorFromRedisClient(rdb))})
package asynqtasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/inspect"
)

// Find returns a function for [inspect.Options.Tasks]. It asks each queue, one after the other, and ctx
// does not end a command under way, because asynq's Inspector takes none.
func Find(in *asynq.Inspector) func(ctx context.Context, id string) ([]inspect.Task, error) {
	return func(ctx context.Context, id string) (found []inspect.Task, err error) {
		queues, err := in.Queues()
		if err != nil {
			return nil, fmt.Errorf("asynqtasks: %w", err)
		}
		for _, queue := range queues {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			t, err := in.GetTaskInfo(queue, id)
			switch {
			case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
				continue
			case err != nil:
				return nil, fmt.Errorf("asynqtasks: queue %s: %w", queue, err)
			}
			found = append(found, inspect.Task{
				ID: t.ID, Queue: t.Queue, Type: t.Type, State: t.State.String(), Orphaned: t.IsOrphaned, Retried: t.Retried, MaxRetry: t.MaxRetry, LastErr: t.LastErr,
			})
			if s := t.State; s == asynq.TaskStateScheduled || s == asynq.TaskStateRetry {
				found[len(found)-1].Next = t.NextProcessAt
			}
		}
		return found, nil
	}
}
