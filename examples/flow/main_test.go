package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// No limit is exceeded, no call begins during a Retry-After, no retry is used up, each tenant has its
// part, and the index has the last change: in virtual time, and on a real Redis.
func TestRun(t *testing.T) {
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		if len(args) > 0 {
			stagetest.Output(t, program, args)
			return
		}
		synctest.Test(t, func(t *testing.T) {
			p := program
			p.Play = func(ctx context.Context, s *stage.Stage) error { return play(ctx, s, inMemory) }
			stagetest.Output(t, p, args, "at most 5 calls at a time", "2 times, and 0 calls began", "84 of 84 calls", "1 at a time, and in [12] after the last change")
			time.Sleep(time.Minute) // the goroutines that wake parked tasks end
		})
	})
}

// The partner counts a call that breaks its rules, and a call during a Retry-After, and refuses them.
func TestPartner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{began: time.Now()}
		post := func() int {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"tenant": "small"}`)))
			return w.Code
		}
		var calls sync.WaitGroup
		for range atOnce {
			calls.Go(func() { post() })
		}
		synctest.Wait()
		if code := post(); code != http.StatusTooManyRequests || p.most != atOnce+1 {
			t.Errorf("a call too many: %d, at most %d", code, p.most)
		}
		calls.Wait()
		for wait, tooEarly := range map[time.Duration]int{0: 0, retryAfter / 2: 1} {
			p.tooEarly = 0
			p.refused[0] = time.Since(p.began) - wait
			if code := post(); code != http.StatusTooManyRequests || p.tooEarly != tooEarly {
				t.Errorf("%v after a 429: %d, and %d were too early", wait, code, p.tooEarly)
			}
		}
		time.Sleep(2 * time.Second)
		for range perSecond {
			p.calls = append(p.calls, call{from: time.Since(p.began)})
		}
		if code := post(); code != http.StatusTooManyRequests || p.mostInSecond != perSecond+1 {
			t.Errorf("a call too many in a second: %d, at most %d", code, p.mostInSecond)
		}
		time.Sleep(time.Second)
		if code := post(); code != http.StatusOK {
			t.Errorf("after the Retry-After: %d", code)
		}
	})
}

// Each number that is not as expected is an error.
func TestJudge(t *testing.T) {
	for want, spoil := range map[string]func(*partner, *state, []*asynq.TaskInfo){
		"":                                func(*partner, *state, []*asynq.TaskInfo) {},
		"6 calls at a time":               func(p *partner, _ *state, _ []*asynq.TaskInfo) { p.most = 6 },
		"21 in a second":                  func(p *partner, _ *state, _ []*asynq.TaskInfo) { p.mostInSecond = 21 },
		"3 times, and 0 calls":            func(p *partner, _ *state, _ []*asynq.TaskInfo) { p.refused = append(p.refused, 0) },
		"2 times, and 1 calls":            func(p *partner, _ *state, _ []*asynq.TaskInfo) { p.tooEarly = 1 },
		"1 retries are used up":           func(_ *partner, _ *state, tasks []*asynq.TaskInfo) { tasks[0].Retried = 1 },
		"83 of 84 calls and 85 rebuilds":  func(_ *partner, _ *state, tasks []*asynq.TaskInfo) { tasks[0].Type = "rebuild" },
		"flood had made 21 of 40":         func(p *partner, _ *state, _ []*asynq.TaskInfo) { p.calls[20].tenant = "flood" },
		"2 at a time":                     func(_ *partner, st *state, _ []*asynq.TaskInfo) { st.most = 2 },
		"and in 0 after the last":         func(_ *partner, st *state, _ []*asynq.TaskInfo) { st.lastChange = time.Minute },
		"85 changes were indexed in 1 re": func(_ *partner, st *state, _ []*asynq.TaskInfo) { st.changes = 85 },
	} {
		p := &partner{most: 5, mostInSecond: 20, refused: make([]time.Duration, 2)}
		p.calls = slices.Concat(slices.Repeat([]call{{tenant: "flood"}}, 20), slices.Repeat([]call{{tenant: "small"}}, 10), slices.Repeat([]call{{tenant: "paying"}}, 30))
		st := &state{most: 1, changes: 84, rebuilds: []rebuild{{changes: 84}}}
		var tasks []*asynq.TaskInfo
		for range 84 {
			tasks = append(tasks, &asynq.TaskInfo{Type: "call"}, &asynq.TaskInfo{Type: "rebuild"})
		}
		spoil(p, st, tasks)
		err := judge(&stage.Stage{Out: io.Discard}, p, st, tasks)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && (!strings.Contains(got, want) || strings.Count(got, "unexpected") != 1) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// listener is the partner's end of a network in memory.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func inMemory(context.Context) (network, error) {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	return network{l, func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case l.conns <- pipe.Buffered(server):
			return pipe.Buffered(client), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
