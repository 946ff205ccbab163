package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// workerEnv makes this program, or its test binary, a worker process. The arguments are then
// ignored.
const workerEnv = "HOLDFAST_HOTKEY_WORKER"

// order is the first line that a worker process reads. Each further line is one of the words below.
type order struct {
	Queue, Locks string // addresses
	Policy       string
	Workers      int
	Check        time.Duration
	Lease        time.Duration // 0: the default
	Delay        time.Duration // of the retry of a failed task; 0: asynq's default
}

const (
	wordServe = "serve"
	wordCount = "count"
)

// event is a line that a worker process writes. Each write has a whole line, so that a kill cuts
// off no part of a line.
type event struct {
	Op      op
	Task    string `json:",omitempty"`
	Account string `json:",omitempty"`
	Token   int64  `json:",omitempty"`
	At      int64  // ns of the machine's clock
	Sent    int64  `json:",omitempty"` // lock commands since wordServe
}

type op string

const (
	opReady     op = "ready"
	opDelivered op = "delivered" // before any middleware
	opBegan     op = "began"     // the handler
	opEnded     op = "ended"
	opLost      op = "lost" // the handler ended because its ctx did
	opLeft      op = "left" // the delivery ended without a run of the handler
	opSent      op = "sent" // the reply to wordCount
)

type worker struct {
	order
	out  io.Writer
	mu   sync.Mutex // guards writes to out
	sent wire.Counter
}

// work is the main function of a worker process. It returns when the standard input ends, because
// then the parent has died.
func work(in io.Reader, out io.Writer) error {
	w := &worker{out: out}
	lines := bufio.NewScanner(in)
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &w.order); err != nil {
		return err
	}
	return w.obey(lines)
}

func (w *worker) obey(lines *bufio.Scanner) error {
	locks, err := lockcore.New(redis.NewClient(&redis.Options{Addr: w.Locks, Dialer: w.sent.Dial}),
		lockcore.Options{Terms: lockcore.Terms{Lease: w.Lease}})
	if err != nil {
		return err
	}
	srv, h := w.server(locks)
	w.say(event{Op: opReady})
	var before int64
	for lines.Scan() {
		switch lines.Text() {
		case wordServe:
			before = w.sent.Commands.Load()
			if err := srv.Start(h); err != nil {
				return err
			}
		case wordCount:
			w.say(event{Op: opSent, Sent: w.sent.Commands.Load() - before})
		}
	}
	return errParentGone
}

var errParentGone = errors.New("hotkey: the program that started this worker process has ended")

// server returns the server and the handler of the policy.
func (w *worker) server(locks *lockcore.Locker) (*asynq.Server, asynq.Handler) {
	queue := asynq.RedisClientOpt{Addr: w.Queue}
	cfg := asynq.Config{Concurrency: w.Workers, TaskCheckInterval: w.Check, LogLevel: asynq.FatalLevel}
	if w.Delay > 0 {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return w.Delay }
	}
	exclusive := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account"), asynqmw.ExclusiveOptions{})
	h := asynq.Handler(asynq.HandlerFunc(w.run))
	switch w.Policy {
	case policyWait:
		h, cfg = exclusive(h), asynqmw.Configure(cfg)
	case policyPark:
		h, cfg = exclusive(h), asynqmw.Configure(cfg, asynqmw.Parking{Inspector: asynq.NewInspector(queue)})
	}
	return asynq.NewServer(queue, cfg), w.delivered(h)
}

// ranKey is the key of a *bool in the ctx of a delivery: whether its handler ran.
type ranKey struct{}

func (w *worker) delivered(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		var ran bool
		w.tell(ctx, opDelivered, t)
		err := next.ProcessTask(context.WithValue(ctx, ranKey{}, &ran), t)
		if !ran {
			w.tell(ctx, opLeft, t)
		}
		return err
	})
}

func (w *worker) run(ctx context.Context, t *asynq.Task) error {
	if ran, ok := ctx.Value(ranKey{}).(*bool); ok {
		*ran = true
	}
	hold := w.tell(ctx, opBegan, t)
	select {
	case <-time.After(hold):
		w.tell(ctx, opEnded, t)
		return nil
	case <-ctx.Done():
		w.tell(ctx, opLost, t)
		return context.Cause(ctx)
	}
}

// tell writes an event of a task, and returns its hold.
func (w *worker) tell(ctx context.Context, o op, t *asynq.Task) time.Duration {
	var p task
	if err := json.Unmarshal(t.Payload(), &p); err != nil {
		panic(err) // the program wrote it
	}
	id, _ := asynq.GetTaskID(ctx)
	hold, _ := guard.Current(ctx)
	w.say(event{Op: o, Task: id, Account: p.Account, Token: hold.Token})
	return p.Hold
}

func (w *worker) say(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.At = time.Now().UnixNano()
	b, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(b, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent has died
	}
}
