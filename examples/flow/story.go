package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
)

// story is what the processes share.
type story struct {
	url       string // of the partner
	http      *http.Client
	client    *asynq.Client
	inspector *asynq.Inspector
	options   []asynq.Option // of a task
	state     *state
}

// network connects the processes with the partner.
type network struct {
	net.Listener
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func loopback(ctx context.Context) (network, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	return network{l, new(net.Dialer).DialContext}, err
}

// play queues the calls, lets two processes work until no task is left, and prints the result.
func play(ctx context.Context, s *stage.Stage, connect func(context.Context) (network, error)) error {
	s.Say("asynq on %s", s.Where())
	st := &story{
		client: asynq.NewClientFromRedisClient(s.Redis), inspector: asynq.NewInspectorFromRedisClient(s.Redis),
		options: []asynq.Option{asynq.Queue(s.Name), asynq.Retention(time.Hour)},
	}
	for _, t := range tenants {
		s.Say("%s queues %d calls", t.name, t.calls)
		for range t.calls {
			if _, err := st.client.EnqueueContext(ctx, asynq.NewTask("call", fmt.Appendf(nil, `{"tenant": %q}`, t.name)), st.options...); err != nil {
				return err
			}
		}
	}
	n, err := connect(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: n.dial, MaxIdleConnsPerHost: atOnce}
	defer transport.CloseIdleConnections()
	st.url, st.http = "http://"+n.Addr().String(), &http.Client{Transport: transport}
	s.Say("the partner allows %d calls at a time and %d a second; %d a second with Burst %d are at most %d in any second",
		atOnce, perSecond, ofPartner.Rate.N, ofPartner.Rate.Burst, ofPartner.Rate.N+ofPartner.Rate.Burst-1)
	began := time.Now()
	p := &partner{began: began}
	st.state = &state{began: began}
	api := &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	var served sync.WaitGroup
	served.Go(func() { _ = api.Serve(n) }) // ends with Close
	defer served.Wait()
	defer func() { _ = api.Close() }()
	for range 2 {
		stop, err := st.start(s)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := st.await(ctx, s.Name); err != nil {
		return err
	}
	tasks, err := st.inspector.ListCompletedTasks(s.Name, asynq.PageSize(10_000))
	if err != nil {
		return err
	}
	draw(s, p, st.state)
	return judge(s, p, st.state, tasks)
}

// start starts a process with three workers, which are too few for all calls. stop ends it.
func (st *story) start(s *stage.Stage) (stop func(), err error) {
	node, err := s.Node(lockcore.Options{})
	if err != nil {
		return nil, err
	}
	cfg, handler := (&worker{st, node.Locks}).server(asynq.Config{
		Concurrency:              3,
		Queues:                   map[string]int{s.Name: 1},
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		LogLevel:                 asynq.FatalLevel,
		ErrorHandler:             asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { s.Say("an attempt is used up: %v", err) }),
	})
	srv := asynq.NewServerFromRedisClient(s.Redis, cfg)
	return srv.Shutdown, srv.Start(handler)
}

// await waits until no task is left.
func (st *story) await(ctx context.Context, queue string) error {
	for {
		q, err := st.inspector.GetQueueInfo(queue)
		if err != nil || q.Pending+q.Active+q.Scheduled+q.Retry == 0 {
			return err
		}
		if err := stage.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// state is the data of which the index is made.
type state struct {
	began time.Time

	mu         sync.Mutex // guards the fields below
	changes    int
	lastChange time.Duration
	now, most  int // rebuilds at the same time
	rebuilds   []rebuild
}

type rebuild struct {
	changes  int // that it covers
	from, to time.Duration
}

func (s *state) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.lastChange = time.Since(s.began)
}

// rebuild reads the changes. The function that it returns stores the index.
func (s *state) rebuild() (store func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.most = max(s.most, s.now)
	r := rebuild{changes: s.changes, from: time.Since(s.began)}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		r.to = time.Since(s.began)
		s.rebuilds = append(s.rebuilds, r)
	}
}
