// Command handover is an API that responds 202 and lets an asynq task do the work. The hold of the
// Idempotency-Key passes from the HTTP handler to the task with a ticket. So a repetition of the
// request gets the 202 until the task has completed it, and then the result.
//
//	go run ./examples/handover                        on a Redis inside the process
//	go run ./examples/handover -redis localhost:6379  on your Redis, with random names
//
// It sends the requests itself, checks the responses, and exits with 1 if one is not as expected.
// Read api.go and worker.go first.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "handover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("handover", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("redis", os.Getenv("REDIS_ADDR"), "`host:port` of a Redis; default: $REDIS_ADDR, else one inside the process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *addr == "" {
		inside, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer inside.Close()
		*addr = inside.Addr()
	}
	rdb := redis.NewClient(&redis.Options{Addr: *addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	name := "holdfast-handover-" + rand.Text()[:8] // of the queue and of the keys

	// In production the API and the worker are two processes. So each has a separate Locker here.
	ofAPI, closeAPI, err := locker(rdb, name)
	if err != nil {
		return err
	}
	defer closeAPI()
	ofWorker, closeWorker, err := locker(rdb, name)
	if err != nil {
		return err
	}
	defer closeWorker()

	server := httptest.NewServer((&api{client: asynq.NewClientFromRedisClient(rdb), queue: name, locks: ofAPI}).handler())
	defer server.Close()
	w := &worker{locks: ofWorker, begin: make(chan struct{}), done: make(chan struct{}), say: func(what string) { _, _ = fmt.Fprintln(stdout, "worker:", what) }}
	queue := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{name: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 50 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	if err := queue.Start(w); err != nil {
		return err
	}
	defer queue.Shutdown()
	return story(ctx, stdout, server.URL, w)
}

func locker(rdb *redis.Client, prefix string) (*lockcore.Locker, func(), error) {
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: prefix})
	if err != nil {
		return nil, nil, err
	}
	return locks, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	}, nil
}

// story orders a report, repeats the request while the task works, and again when it has ended.
func story(ctx context.Context, stdout io.Writer, url string, w *worker) error {
	for _, want := range []int{http.StatusAccepted, http.StatusAccepted} {
		if err := post(ctx, stdout, url, want); err != nil {
			return err
		}
	}
	close(w.begin)
	select {
	case <-w.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return post(ctx, stdout, url, http.StatusCreated)
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
	_, _ = fmt.Fprintf(stdout, "POST /reports: %d %s (replayed: %v)\n", res.StatusCode, strings.TrimSpace(string(body)), res.Header.Get(httpmw.HeaderReplayed) != "")
	if res.StatusCode != want {
		return fmt.Errorf("the status is %d, want %d: %s", res.StatusCode, want, body)
	}
	return nil
}
