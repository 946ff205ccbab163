package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// story orders a report, repeats the request while the task works, and again when it has ended.
func story(ctx context.Context, s *stage.Stage) error {
	ofAPI, err := s.Node(lockcore.Options{})
	if err != nil {
		return err
	}
	ofWorker, err := s.Node(lockcore.Options{})
	if err != nil {
		return err
	}
	server := httptest.NewServer((&api{client: asynq.NewClientFromRedisClient(s.Redis), queue: s.Name, locks: ofAPI.Locks}).handler())
	defer server.Close()
	w := &worker{locks: ofWorker.Locks, begin: make(chan struct{}), done: make(chan struct{}), say: func(what string) { fmt.Fprintln(s.Out, "worker:", what) }}
	queue := asynq.NewServerFromRedisClient(s.Redis, asynq.Config{
		Queues: map[string]int{s.Name: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 50 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	if err := queue.Start(w); err != nil {
		return err
	}
	defer queue.Shutdown()

	for range 2 {
		if err := post(ctx, s.Out, server.URL, http.StatusAccepted); err != nil {
			return err
		}
	}
	close(w.begin)
	select {
	case <-w.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return post(ctx, s.Out, server.URL, http.StatusCreated)
}

// post sends the same request each time.
func post(ctx context.Context, stdout io.Writer, url string, want int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/reports", strings.NewReader(`{"month":"2026-10"}`))
	if err != nil {
		return err
	}
	r.Header.Set(httpmw.HeaderKey, "report-2026-10")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "POST /reports: %d %s (replayed: %v)\n", res.StatusCode, strings.TrimSpace(string(body)), res.Header.Get(httpmw.HeaderReplayed) != "")
	if res.StatusCode != want {
		return fmt.Errorf("the status is %d, want %d: %s", res.StatusCode, want, body)
	}
	return nil
}
