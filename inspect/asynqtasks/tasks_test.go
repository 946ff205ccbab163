package asynqtasks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/inspect/asynqtasks"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The page says why an asynq task waits, in each of its states.
func TestWhy(t *testing.T) {
	s := locktest.NewServer(t)
	rdb := redis.NewClient(s.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	locks := s.Locker(lockcore.Options{})
	find := asynqtasks.Find(asynq.NewInspectorFromRedisClient(rdb))
	page := inspect.New(locks, inspect.Options{Tasks: find})
	ask := func(id string) string {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/why?q="+id, http.NoBody))
		return w.Body.String()
	}
	says := func(id string, want ...string) {
		t.Helper()
		end := time.Now().Add(30 * time.Second)
		for {
			text, missing := ask(id), ""
			for _, part := range want {
				if !strings.Contains(text, part) {
					missing = part
				}
			}
			if missing == "" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no %q in %s", missing, text)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	says("none", "no task has that ID") // there is no queue yet

	client := asynq.NewClientFromRedisClient(rdb)
	enqueue := func(id string, more ...asynq.Option) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`"42"`)), append(more, asynq.TaskID(id), asynq.Retention(time.Hour))...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("later", asynq.ProcessIn(time.Hour))
	enqueue("waits", asynq.Queue("idle"))
	says("later", "is scheduled, at", `"state": "scheduled"`)
	says("waits", "waits for a worker", `"queue": "idle"`)

	release := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(asynqmw.Exclusive(locks, asynqmw.ByType(), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}}))
	mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	server := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{Concurrency: 2, TaskCheckInterval: 50 * time.Millisecond, LogLevel: asynq.FatalLevel}))
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	enqueue("runs")
	says("runs", "runs, and has its key", `"holds": true`, `"key": "type:charge"`, `"task": "runs"`)
	enqueue("busy")
	says("busy", "found its key busy", "is held by", `task \"runs\"`, `"key": "type:charge"`, "so its process lived then")
	close(release)
	says("runs", "is completed")
}
