package main

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// newServer starts a redis-server that ends with the test, or skips the test.
func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	srv, err := startServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.close)
	return srv
}

// Calls of the model never overlap, and their tokens increase. A batch of hand-offs ends, and then
// the key is released in Redis.
func TestModel(t *testing.T) {
	srv, sent := newServer(t), new(wire.Counter)
	l, err := openModel(setup{addr: srv.addr, wire: sent})
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 16, 200
	var tokens []int64 // only the holder writes it
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				h, err := l.lock(t.Context(), "key")
				if err != nil {
					t.Error(err)
					return
				}
				hold := h.(*modelHold) //nolint:errcheck // what model returns
				if d, ok := hold.ctx.Deadline(); !ok || time.Until(d) > floorLease {
					t.Errorf("the ctx ends at %v", d)
				}
				tokens = append(tokens, hold.token)
				if err := h.unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if len(tokens) != callers*each || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("%d tokens, want %d that increase", len(tokens), callers*each)
	}
	if n, least := sent.Commands.Load(), int64(2*callers*each/modelHandOffs); n < least {
		t.Errorf("%d commands, want at least %d", n, least)
	}
	if n, err := srv.admin.Exists(t.Context(), "key").Result(); err != nil || n != 0 {
		t.Errorf("the key is still in Redis: %d, %v", n, err)
	}
}

// Callers are served in the order of their calls. A caller that gives up leaves the queue, and the
// one after it gets the key.
func TestModelQueue(t *testing.T) {
	srv := newServer(t)
	l, err := openModel(setup{addr: srv.addr, wire: new(wire.Counter)})
	if err != nil {
		t.Fatal(err)
	}
	k := l.(*model).keyNamed("key") //nolint:errcheck // what openModel returns
	waiting := func(n int) {
		for {
			k.mu.Lock()
			got := len(k.waiters)
			k.mu.Unlock()
			if got == n || t.Failed() {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	first, err := l.lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	gone, giveUp := context.WithCancel(t.Context())
	served := make(chan int, 3)
	var all sync.WaitGroup
	for i, ctx := range []context.Context{t.Context(), gone, t.Context()} {
		all.Go(func() {
			h, err := l.lock(ctx, "key")
			if i == 1 {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the caller that gave up got %v", err)
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			served <- i
			if err := h.unlock(ctx); err != nil {
				t.Error(err)
			}
		})
		waiting(i + 1)
	}
	giveUp()
	waiting(2)
	if err := first.unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if a, b := <-served, <-served; a != 0 || b != 2 {
		t.Errorf("served %d and then %d", a, b)
	}
}

// The semaphore admits one caller per key at a time, and a waiter obeys its ctx.
func TestSemaphore(t *testing.T) {
	l, _ := openSemaphore(setup{})
	h, err := l.lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.lock(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second caller got %v", err)
	}
	other, err := l.lock(t.Context(), "another key")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []held{h, other} {
		if err := h.unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The limits are measured in hot and hot1k only. They do not count as the best library or as ahead
// of holdfast.
func TestLimitsAreNoLibraries(t *testing.T) {
	for _, s := range scenarios {
		for _, name := range []string{semaphoreName, modelName} {
			if want := s.name == "hot" || s.name == "hot1k"; s.has(name) != want {
				t.Errorf("%s has %s: %v", s.name, name, !want)
			}
		}
	}
	rs := append(cells(), result{Scenario: "hot", Library: semaphoreName, OpsPerS: 1e6, P99US: 1}, result{Scenario: "hot", Library: modelName, OpsPerS: 1e5, P99US: 2})
	for _, v := range judge(rs) {
		if v.mark.text == "≥ 20 × best library" && v.value.Median != 19 {
			t.Errorf("the best library: %v", v.value)
		}
		if v.mark.text == "≥ 0.5 × the model" && v.value.Median != 0.19 {
			t.Errorf("the model: %v", v.value)
		}
	}
	if got, want := len(losses(rs)), len(losses(cells())); got != want {
		t.Errorf("with limits %d libraries are ahead, without them %d", got, want)
	}
}
