package httpmw_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const frameworksPage = "docs/frameworks.md#http-frameworks"

// wantMisconfigured checks that the Observer got one Misconfigured, which names the page.
func (f *fixture) wantMisconfigured() {
	f.t.Helper()
	got := locktest.EventsOf[event.Misconfigured](&f.events.Recorder)
	if len(got) != 1 || !strings.Contains(got[0].Problem, frameworksPage) {
		f.t.Errorf("got %v, want one event.Misconfigured that names %s", got, frameworksPage)
	}
}

// Code in front answers through the writer of the handler, after Idempotent has returned, as the
// error handler of a framework does. Nothing of that is sent or recorded, and it is reported once.
// Shows: H14
func TestWriteAfterTheReturnIsReported(t *testing.T) {
	write := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusPaymentRequired)
		if n, err := io.WriteString(w, "declined"); n != 0 || err == nil {
			t.Errorf("a late write returned %d, %v", n, err)
		}
	}
	for name, late := range map[string]func(http.ResponseWriter){
		"status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusPaymentRequired) },
		"body":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "declined") },
		"flush":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"all":    write,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(l *lockcore.Locker) http.Handler {
				var inner http.ResponseWriter
				once := idempotent(l, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inner = w }))
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner = nil
					once.ServeHTTP(w, r)
					if inner != nil {
						late(inner)
					}
				})
			})
			for range 2 {
				f.wantRan(f.do("POST", "/orders", "", "Idempotency-Key", name), 200)
				if a := f.do("POST", "/orders", "", "Idempotency-Key", name); !a.replayed() || a.status != 200 || a.body != "" {
					t.Errorf("got %d %q, replayed %v", a.status, a.body, a.replayed())
				}
				f.wantRan(f.do("POST", "/orders", "", "Idempotency-Key", name+"2"), 200)
				f.redis.FlushAll()
			}
			f.wantMisconfigured()
		})
	}
}

// A goroutine of the handler writes while the handler returns. The write is part of the response or
// is lost as a whole, and the replay equals the response.
// Shows: H14
func TestWriteWhileTheHandlerReturns(t *testing.T) {
	var runs atomic.Int64
	var late sync.WaitGroup
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		begin := make(chan struct{})
		late.Go(func() {
			<-begin
			_, _ = io.WriteString(w, "late")
		})
		if runs.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusCreated)
		}
		close(begin)
	})
	for range 50 {
		first, again := f.post("k"), f.post("k")
		late.Wait()
		f.wantReplayed(again, first.status)
		if first.body != "" && first.body != "late" || again.body != first.body {
			t.Errorf("got %q, then %q", first.body, again.body)
		}
		f.redis.FlushAll()
	}
}

// The handler writes to the writer in front of Idempotent instead of its own. Its response is sent,
// and cannot be recorded. A repetition is refused, and is not answered with an empty 200.
// Shows: H14
func TestWriteAroundIdempotentIsReported(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		return http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
			httpmw.Idempotent(l, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				runs.Add(1)
				outer.Header().Set("Content-Type", "text/plain")
				outer.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(outer, "made")
			})).ServeHTTP(outer, r)
		})
	})
	if a := f.post("k"); a.status != 201 || a.body != "made" {
		t.Errorf("got %d %q", a.status, a.body)
	}
	f.wantProblem(f.post("k"), 409, "not-replayable")
	f.wantMisconfigured()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}
