package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// wantCrowded checks that a is a refusal with a valid Retry-After.
func wantCrowded(t *testing.T, a answer, status int, problem string) {
	t.Helper()
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); a.status != status || a.problem() != problem || err != nil || n < 1 || n > 60 {
		t.Errorf("got %d %q, Retry-After %q; want %d, %s", a.status, a.body, a.header.Get("Retry-After"), status, problem)
	}
}

// A key is held, 64 requests wait, and the next one is refused at once with the Status of the
// options. The waiting requests run after the release.
// Shows: H11
func TestExclusiveMaxWaiting(t *testing.T) {
	for status, want := range map[int]int{0: 409, http.StatusLocked: 423} {
		inBubble(t, func(t *testing.T, b bubble) {
			var refusal error
			o := httpmw.ExclusiveOptions{Terms: patience, Status: status, Problem: func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
				refusal = p.Err
				httpmw.WriteProblem(w, r, p)
			}}
			h := httpmw.Exclusive(b.locks, fixed("account:42"), o)(http.HandlerFunc(created))
			release := locktest.Hold(t, b.locks, "account:42")
			wait := inLine(h, 64)
			start := time.Now()
			wantCrowded(t, post(h), want, "busy")
			if d := time.Since(start); d != 0 {
				t.Errorf("refused after %v", d)
			}
			if busy, ok := errors.AsType[*lockcore.BusyError](refusal); !ok || busy.Waiting != 64 {
				t.Errorf("refused because of %+v", refusal)
			}
			release()
			if served := wait(); served[201] != 64 {
				t.Errorf("the waiting requests got %v", served)
			}
		})
	}
}

// inLine starts n requests that wait. wait returns the number of responses with each status.
func inLine(h http.Handler, n int) (wait func() map[int]int) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	statuses := map[int]int{}
	for range n {
		calls.Go(func() {
			a := post(h)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	synctest.Wait()
	return func() map[int]int {
		calls.Wait()
		return statuses
	}
}

// The first request of a key runs, 64 repetitions wait, and the next one is refused at once. The
// waiting requests are replayed.
// Shows: H11
func TestIdempotentMaxWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		g := newGate(created)
		h := idempotent(b.locks, httpmw.IdempotentOptions{Terms: patience})(g)
		wait := inLine(h, 65)
		wantCrowded(t, post(h), 409, "in-progress")
		close(g.leave)
		if served := wait(); served[201] != 65 || g.runs.Load() != 1 {
			t.Errorf("%d runs, and the waiting requests got %v", g.runs.Load(), served)
		}
		if a := post(h); a.status != 201 || !a.replayed() {
			t.Errorf("later: %d, replayed: %v", a.status, a.replayed())
		}
	})
}

// MaxWaiting of the options has precedence over that of the Locker, and both over the default of
// 64.
// Shows: H11
func TestMaxWaitingOverride(t *testing.T) {
	for name, c := range map[string]struct{ locker, options, want int }{
		"default": {0, 0, 64}, "locker": {3, 0, 3}, "options": {3, 5, 5}, "none": {3, 1_000_000, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Terms: lockcore.Terms{MaxWaiting: c.locker}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locks.Close(context.Background()) }()
				terms := patience
				terms.MaxWaiting = c.options
				release := locktest.Hold(t, locks, "account:42")
				exclusive := httpmw.Exclusive(locks, fixed("account:42"), httpmw.ExclusiveOptions{Terms: terms})(http.HandlerFunc(created))
				g := newGate(created)
				once := idempotent(locks, httpmw.IdempotentOptions{Terms: terms})(g)
				first := inLine(once, 1)
				for problem, h := range map[string]http.Handler{"busy": exclusive, "in-progress": once} {
					wait := inLine(h, 200)
					if c.want < 200 {
						wantCrowded(t, post(h), 409, problem)
					}
					defer func() {
						if served := wait(); served[201] != c.want || served[409] != 200-c.want {
							t.Errorf("%s: got %v, want %d to wait", problem, served, c.want)
						}
					}()
				}
				release()
				close(g.leave)
				first()
			})
		})
	}
}

// 300 clients request one key repeatedly, and obey Retry-After. At most 64 requests wait at any
// time, some clients are served, and requests of other keys run meanwhile. The result does not
// depend on the speed of the machine.
// Shows: H11
func TestMaxWaitingManyClients(t *testing.T) {
	testlevel.Full(t)
	const clients, others, rounds = 300, 20, 10
	var inside, most atomic.Int64
	f, _ := alone(t, httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "hot" {
			if inside.Add(1) != 1 {
				t.Error("two inside the hot key")
			}
			defer inside.Add(-1)
		}
		time.Sleep(5 * time.Millisecond)
		w.WriteHeader(http.StatusCreated)
	})
	f.events.hear(func(e event.Event) { // events have the length of the queue, read under its mutex
		queue := 0
		switch e := e.(type) {
		case event.Waiting:
			queue = e.Queue
		case event.Granted:
			queue = e.Queue
		case event.Refused:
			queue = e.Queue
		}
		for old := most.Load(); int64(queue) > old && !most.CompareAndSwap(old, int64(queue)); old = most.Load() {
		}
	})
	f.srv.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = clients + others //nolint:errcheck,forcetypeassert // of httptest

	ctx, stop := context.WithCancel(t.Context())
	var hot, cold sync.WaitGroup
	var served, refused atomic.Int64
	for range clients {
		hot.Go(func() {
			for ctx.Err() == nil {
				a, err := f.send(f.request("POST", "/accounts/hot", ""))
				switch {
				case err != nil:
					t.Error(err)
					return
				case a.status == 201:
					served.Add(1)
					continue
				case a.problem() != "busy":
					t.Errorf("got %d %q", a.status, a.body)
				}
				refused.Add(1)
				after, err := strconv.Atoi(a.header.Get("Retry-After"))
				if err != nil {
					t.Errorf("Retry-After: %v", err)
				}
				select {
				case <-time.After(time.Duration(after) * time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	for refused.Load() < clients/2 {
		time.Sleep(time.Millisecond)
	}
	for i := range others {
		cold.Go(func() {
			for range rounds {
				if a, err := f.send(f.request("POST", fmt.Sprint("/accounts/", i), "")); err != nil || a.status != 201 {
					t.Errorf("another key: %d %q, %v", a.status, a.body, err)
				}
			}
		})
	}
	cold.Wait()
	stop()
	hot.Wait()
	t.Logf("the hot key: %d served, %d refused, at most %d in its queue", served.Load(), refused.Load(), most.Load())
	if most.Load() != 64 || served.Load() == 0 {
		t.Errorf("%d served, at most %d in the queue, want 64", served.Load(), most.Load())
	}
}
