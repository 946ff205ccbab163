package main

import (
	"bytes"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
)

// The program charges a payment once, although two tasks have it, and ends at a signal.
func TestProgram(t *testing.T) {
	m := miniredis.RunT(t)
	t.Setenv("REDIS_ADDR", m.Addr())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM) // a signal before the server waits for it must not end the test
	defer signal.Stop(signals)
	var printed page
	log.SetOutput(io.MultiWriter(&printed, os.Stderr))
	defer log.SetOutput(os.Stderr)

	redis := asynq.RedisClientOpt{Addr: m.Addr()}
	client, inspector := asynq.NewClient(redis), asynq.NewInspector(redis)
	defer client.Close()
	defer inspector.Close()
	ids := []string{"first", "second"}
	for _, id := range ids {
		task := asynq.NewTask("charge", []byte(`{"payment_id": 7, "account_id": 42}`))
		if _, err := client.Enqueue(task, asynq.TaskID(id), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		main()
	}()
	for _, id := range ids {
		for {
			info, err := inspector.GetTaskInfo("default", id)
			if err != nil {
				t.Fatal(err)
			}
			if info.State == asynq.TaskStateCompleted {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for running := true; running; {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			running = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	if got := printed.String(); strings.Count(got, "charging") != 1 || !strings.Contains(got, "stopped: <nil>") {
		t.Errorf("printed\n%s", got)
	}
}

// page is a buffer for several goroutines.
type page struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}
