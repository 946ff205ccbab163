package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// exclusively returns h behind Exclusive with the key account:42.
func (b bubble) exclusively(o httpmw.ExclusiveOptions, h http.HandlerFunc) http.Handler {
	return httpmw.Exclusive(b.locks, fixed("account:42"), o)(h)
}

// Redis is unavailable. The response is 503, and nothing runs. After the outage requests run again.
// A closed Locker has the same response.
func TestExclusiveRedisAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		h := b.exclusively(httpmw.ExclusiveOptions{}, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
		wantAway := func() {
			t.Helper()
			a := post(h)
			if a.status != 503 || a.problem() != "unavailable" || a.header.Get("Retry-After") != "5" {
				t.Errorf("got %d %q, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
			}
		}
		b.faults.Down()
		wantAway()
		b.faults.Heal()
		if a := post(h); a.status != 200 {
			t.Errorf("got %d %q after the outage", a.status, a.body)
		}
		if err := b.locks.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantAway()
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

// By default a request waits for 2 s for its key. Then the response is 409.
func TestExclusiveWaitsTwoSecondsByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		h := b.exclusively(httpmw.ExclusiveOptions{}, created)
		defer locktest.Hold(t, b.locks, "account:42")()
		start := time.Now()
		if a := post(h); a.status != 409 || time.Since(start) != 2*time.Second {
			t.Errorf("got %d after %v", a.status, time.Since(start))
		}
	})
}

// The lease is lost while the handler runs. The handler's ctx ends in time, and the response is
// that of the handler.
func TestExclusiveLeaseLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		h := b.exclusively(httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, r *http.Request) {
			b.faults.Silence()
			start := time.Now()
			<-r.Context().Done()
			if err := context.Cause(r.Context()); !errors.Is(err, lockcore.ErrLost) || time.Since(start) > 27*time.Second {
				t.Errorf("the ctx ended by %v after %v", err, time.Since(start))
			}
			w.WriteHeader(http.StatusTeapot)
		})
		if a := post(h); a.status != http.StatusTeapot || a.body != "" {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})
}

// A handler ignores its ctx. Other requests wait for MaxHold, by default 5 min, and a lease. The
// response of the handler is sent.
// Shows: H10
func TestExclusiveHandlerIgnoresItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		start := time.Now()
		var first atomic.Bool
		var second time.Duration
		h := b.exclusively(httpmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}, func(w http.ResponseWriter, r *http.Request) {
			if !first.CompareAndSwap(false, true) {
				second = time.Since(start)
				return
			}
			time.Sleep(10 * time.Minute)
			if err := context.Cause(r.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
				t.Errorf("the handler's ctx ended by %v", err)
			}
			w.WriteHeader(http.StatusCreated)
		})
		done := make(chan answer)
		go func() { done <- post(h) }() // ends with the handler
		time.Sleep(time.Second)
		if a := post(h); a.status != 200 || second < 5*time.Minute || second > 5*time.Minute+32*time.Second {
			t.Errorf("got %d; ran after %v", a.status, second)
		}
		if a := <-done; a.status != 201 {
			t.Errorf("got %d", a.status)
		}
	})
}

// Redis executes a command, and its reply is lost. The handler runs once per request, and the key
// is free afterwards.
func TestExclusiveReplyIsLost(t *testing.T) {
	for _, script := range []string{"acquire", "release"} {
		inBubble(t, func(t *testing.T, b bubble) {
			var runs atomic.Int64
			h := b.exclusively(httpmw.ExclusiveOptions{Terms: patience}, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
			lost := b.faults.LoseReply(faulty.Script(script))
			for range 2 {
				if a := post(h); a.status != 200 {
					t.Errorf("%s: got %d %q", script, a.status, a.body)
				}
			}
			select {
			case <-lost.Replied():
			default:
				t.Fatalf("%s: no reply was lost", script)
			}
			if runs.Load() != 2 {
				t.Errorf("%s: %d runs, want 2", script, runs.Load())
			}
		})
	}
}

var errOwnCause = errors.New("the chain's own time is over")

// The ctx of a request ends, before the first command or while Redis does not reply. The handler
// did not run, so the response is 503 with Retry-After. It is not an error of the program, whatever
// the cause of the ctx is.
func TestTimeOfTheRequestIsOver(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"before, by the client": func(context.Context) (context.Context, context.CancelFunc) { return canceled, cancel },
		"before":                func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) },
		"while Redis is silent": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 300*time.Millisecond)
		},
		"before, with a cause of its own": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, 0, errOwnCause)
		},
		"with a cause of its own": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, 300*time.Millisecond, errOwnCause)
		},
	} {
		inBubble(t, func(t *testing.T, b bubble) {
			var seen error
			note := func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
				seen = p.Err
				httpmw.WriteProblem(w, r, p)
			}
			b.faults.Silence()
			defer b.faults.Heal()
			for kind, h := range map[string]http.Handler{
				"Exclusive":  b.exclusively(httpmw.ExclusiveOptions{Problem: note}, created),
				"Idempotent": httpmw.Idempotent(b.locks, tenant, httpmw.IdempotentOptions{Problem: note})(http.HandlerFunc(created)),
			} {
				a := post(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, cancel := end(r.Context())
					defer cancel()
					h.ServeHTTP(w, r.WithContext(ctx))
				}))
				if a.status != 503 || a.problem() != "unavailable" || a.header.Get("Retry-After") != "5" {
					t.Errorf("%s, %s: got %d %q for %v", kind, name, a.status, a.body, seen)
				}
			}
		})
	}
}
