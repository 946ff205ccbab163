package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// gate is a handler that sends to entered when it runs, and waits for leave.
type gate struct {
	entered, leave chan struct{}
	runs           atomic.Int64
	then           http.HandlerFunc
}

func newGate(then http.HandlerFunc) *gate {
	return &gate{entered: make(chan struct{}, 16), leave: make(chan struct{}), then: then}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.runs.Add(1)
	g.entered <- struct{}{}
	<-g.leave
	g.then(w, r)
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// A repetition comes while the first request runs. With NoWait it gets 409 at once, as the draft of
// the IETF requires. By default it waits first, see TestSecondWaitsByDefault.
func TestSecondComesAgainWhileTheFirstRuns(t *testing.T) {
	g := newGate(created)
	f := guarded(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}}, g.ServeHTTP)
	first := f.start(t.Context(), "k")
	<-g.entered

	a := f.post("k")
	f.wantProblem(a, 409, "in-progress")
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	f.wantProblem(f.do("POST", "/orders", "other", "Idempotency-Key", "k"), 422, "key-reused")

	close(g.leave)
	f.wantRan(<-first, 201)
	f.wantReplayed(f.post("k"), 201)
}

// By default a repetition waits while the first request runs.
func TestSecondWaitsByDefault(t *testing.T) {
	g := newGate(created)
	f := guarded(t, httpmw.IdempotentOptions{}, g.ServeHTTP)
	first := f.start(t.Context(), "k")
	<-g.entered
	second := f.start(t.Context(), "k")
	<-f.events.waiting // with NoWait there is no such event
	close(g.leave)
	f.wantRan(<-first, 201)
	if a := <-second; a.problem() != "" && a.problem() != "in-progress" { // on a slow machine its wait of 2 s may end
		t.Errorf("got %d %q", a.status, a.body)
	}
}

func TestSecondWaitsAndReplays(t *testing.T) {
	g := newGate(created)
	f := guarded(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: time.Minute}}, g.ServeHTTP)
	first := f.start(t.Context(), "k")
	<-g.entered
	second := f.start(t.Context(), "k")
	<-f.events.waiting
	close(g.leave)
	f.wantRan(<-first, 201)
	f.wantReplayed(<-second, 201)
}

func TestOneOfManyRuns(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: time.Minute}}, order(&runs))
	const n = 30
	var firsts, replays atomic.Int64
	var wg sync.WaitGroup
	for range n {
		r := f.request("POST", "/orders", "body", "Idempotency-Key", "k")
		wg.Go(func() {
			a, err := f.send(r)
			switch {
			case err != nil || a.status != 201 || a.body != orderText(1, "body"):
				t.Errorf("got %d %q, %v", a.status, a.body, err)
			case a.replayed():
				replays.Add(1)
			default:
				firsts.Add(1)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || firsts.Load() != 1 || replays.Load() != n-1 {
		t.Errorf("%d runs, %d first answers, %d replays", runs.Load(), firsts.Load(), replays.Load())
	}
}

// front passes every request to next, and reports its end to the test.
type front struct {
	next http.Handler
	gone chan struct{} // gets a value when the ctx of a request has ended
	done chan any      // gets the panic value of a request that was served, or nil
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stop := context.AfterFunc(r.Context(), func() {
		select {
		case f.gone <- struct{}{}:
		default:
		}
	})
	defer func() {
		stop()
		p := recover()
		select {
		case f.done <- p:
		default:
		}
		if p != nil {
			panic(p)
		}
	}()
	f.next.ServeHTTP(w, r)
}

func fronted(t *testing.T, o httpmw.IdempotentOptions, h http.Handler) (*fixture, *front) {
	t.Helper()
	fr := &front{gone: make(chan struct{}, 1), done: make(chan any, 1)}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		fr.next = idempotent(l, o)(h)
		return fr
	})
	return f, fr
}

// Shows: H4
func TestDisconnectDoesNotEndTheHandlerAndItsAnswerIsRecorded(t *testing.T) {
	var cause error
	g := newGate(func(w http.ResponseWriter, r *http.Request) {
		cause = context.Cause(r.Context())
		w.WriteHeader(http.StatusCreated)
	})
	f, fr := fronted(t, httpmw.IdempotentOptions{}, g)
	ctx, cancel := context.WithCancel(t.Context())
	first := f.start(ctx, "k")
	<-g.entered
	cancel()
	<-first
	<-fr.gone
	close(g.leave)
	<-fr.done
	if cause != nil {
		t.Errorf("the handler's ctx ended: %v", cause)
	}
	f.wantReplayed(f.post("k"), 201)
	if n := g.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

func TestCancelOnDisconnectEndsTheHandler(t *testing.T) {
	entered := make(chan struct{}, 1)
	f, fr := fronted(t, httpmw.IdempotentOptions{CancelOnDisconnect: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		if r.Header.Get("Hang") == "" {
			return
		}
		<-r.Context().Done()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	r := f.request("POST", "/orders", "body", "Idempotency-Key", "k", "Hang", "yes").WithContext(ctx)
	go func() { <-entered; cancel() }() // ends with the handler's start
	if _, err := f.send(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-fr.done
	f.wantRan(f.post("k"), 200)
}

// A client disconnects while its request is in the wait queue. The request does not run.
func TestDisconnectWhileWaitingEndsTheWait(t *testing.T) {
	g := newGate(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	f, fr := fronted(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}, g)
	first := f.start(t.Context(), "k")
	<-g.entered
	ctx, cancel := context.WithCancel(t.Context())
	second := f.start(ctx, "k")
	<-f.events.waiting
	cancel()
	<-second
	<-fr.done // of the second request: the first one is still in its handler
	close(g.leave)
	f.wantRan(<-first, 500)
	if n := g.runs.Load(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

func TestPanicFreesTheKeyAndPassesOn(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "a mistake"} {
		var runs atomic.Int64
		f, fr := fronted(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if runs.Add(1) == 1 {
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("never seen"))
				panic(value)
			}
		}))
		if a, err := f.send(f.request("POST", "/orders", "body", "Idempotency-Key", "k")); err == nil {
			t.Errorf("got %d %q, want no answer", a.status, a.body)
		}
		if got := <-fr.done; got != value {
			t.Errorf("panicked with %v, want %v", got, value)
		}
		f.wantRan(f.post("k"), 200)
		f.wantReplayed(f.post("k"), 200)
	}
}

func TestPanicAtMostOnceLeavesTheOutcomeUnknown(t *testing.T) {
	var runs atomic.Int64
	var key string
	f := guarded(t, httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, func(_ http.ResponseWriter, r *http.Request) {
		key = httpmw.Key(r.Context())
		if runs.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	if _, err := f.send(f.request("POST", "/orders", "body", "Idempotency-Key", "k")); err == nil {
		t.Error("got an answer")
	}
	a := f.post("k")
	f.wantProblem(a, 409, "outcome-unknown")
	if s := a.header.Get("Retry-After"); s != "" {
		t.Errorf("Retry-After is %q: want none, because a repetition does not help", s)
	}
	if err := f.locks.Clear(t.Context(), event.KindOnce, key); err != nil {
		t.Fatal(err)
	}
	f.wantRan(f.post("k"), 200)
}
