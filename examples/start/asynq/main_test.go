package main

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Two tasks have one payment. It is charged once, both end as completed, with one receipt, and the program ends when it
// is interrupted.
func TestRun(t *testing.T) {
	var lines strings.Builder // read when run has ended
	log.SetOutput(&lines)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, rdb.Options().Addr) }() // ends when ctx does

	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	for _, id := range []string{"first", "second"} {
		task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
		if _, err := client.EnqueueContext(t.Context(), task, asynq.TaskID(id), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"first", "second"} {
		info, err := inspector.GetTaskInfo("default", id)
		for err == nil && info.State != asynq.TaskStateCompleted {
			time.Sleep(10 * time.Millisecond)
			info, err = inspector.GetTaskInfo("default", id)
		}
		if err != nil || string(info.Result) != "receipt for charge/payment:7" {
			t.Errorf("task %s: %q, %v", id, info.Result, err)
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(lines.String(), "charging"); n != 1 {
		t.Errorf("%d charges:\n%s", n, &lines)
	}
}
