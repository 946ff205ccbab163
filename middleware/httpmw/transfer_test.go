package httpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// transfers returns a handler that transfers its hold, sends the ticket to tickets and responds
// with 202.
func transfers(t *testing.T, tickets chan<- string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		ticket, err := guard.Ticket(r.Context(), httpmw.Key(r.Context()), time.Hour)
		if err != nil {
			t.Error(err)
		}
		tickets <- ticket
		w.Header().Set("Location", "/jobs/7")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("accepted"))
	}
}

func (f *fixture) adopt(ticket string) *lockcore.Lease {
	f.t.Helper()
	lease, err := f.locks.Adopt(f.t.Context(), ticket, lockcore.Terms{})
	if err != nil {
		f.t.Fatal(err)
	}
	return lease
}

func (f *fixture) wantInterim(a answer) {
	f.t.Helper()
	f.wantReplayed(a, http.StatusAccepted)
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 || a.body != "accepted" || a.header.Get("Location") != "/jobs/7" {
		f.t.Fatalf("got %q with %v", a.body, a.header)
	}
}

// A handler transfers its hold. Repetitions get its 202 at once until the job completes, and then
// the response of the job.
// Shows: T5, T7
func TestTransfer(t *testing.T) {
	tickets := make(chan string, 1)
	f := guarded(t, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: time.Hour}, Keep: 2 * time.Hour}, transfers(t, tickets))
	f.wantRan(f.post("k"), http.StatusAccepted)
	f.wantInterim(f.post("k"))
	f.wantProblem(f.do("POST", "/orders", "another body", "Idempotency-Key", "k"), http.StatusUnprocessableEntity, "key-reused")
	lease := f.adopt(<-tickets)
	f.wantInterim(f.post("k"))
	if err := httpmw.Complete(t.Context(), lease, http.StatusNoContent, nil, []byte("body")); err == nil || !strings.Contains(err.Error(), "204") {
		t.Errorf("a body that the status forbids: %v", err)
	}
	if err := httpmw.Complete(t.Context(), lease, 42, nil, nil); err == nil || !strings.Contains(err.Error(), "42") {
		t.Errorf("a bad status: %v", err)
	}
	if lease.Keep() != 2*time.Hour || lease.Context().Err() != nil {
		t.Errorf("Keep is %v, ctx %v", lease.Keep(), lease.Context().Err())
	}
	for _, foreign := range f.foreignLeases() {
		err := httpmw.Complete(t.Context(), foreign, http.StatusOK, nil, nil)
		if err == nil || !strings.Contains(err.Error(), foreign.Key()) || foreign.Context().Err() != nil {
			t.Errorf("a lease of another key: %v, ctx %v", err, foreign.Context().Err())
		}
		if err := foreign.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	header := http.Header{"Content-Type": {"application/json"}, "Set-Cookie": {"secret"}, "Content-Length": {"99"}}
	if err := httpmw.Complete(t.Context(), lease, http.StatusCreated, header, []byte(`{"order":7}`)); err != nil {
		t.Fatal(err)
	}
	a := f.post("k")
	f.wantReplayed(a, http.StatusCreated)
	if a.body != `{"order":7}` || a.header.Get("Content-Type") != "application/json" || a.header.Get("Retry-After") != "" ||
		strings.Contains(a.header.Get("Set-Cookie"), "secret") {
		t.Errorf("got %q with %v", a.body, a.header)
	}
	if err := httpmw.Complete(t.Context(), lease, http.StatusOK, nil, nil); !errors.Is(err, lockcore.ErrReleased) {
		t.Errorf("a second Complete: %v", err)
	}
}

// foreignLeases returns leases that Idempotent has not made.
func (f *fixture) foreignLeases() []*lockcore.Lease {
	f.t.Helper()
	exclusive, err := f.locks.Acquire(f.t.Context(), "http:exclusive", lockcore.Terms{})
	if err != nil {
		f.t.Fatal(err)
	}
	once, _, err := f.locks.Claim(f.t.Context(), "once", lockcore.Claim{})
	if err != nil {
		f.t.Fatal(err)
	}
	return []*lockcore.Lease{exclusive, once}
}

// A job releases the key, and the next request runs. A job abandons the key, and the next request
// is refused.
// Shows: T7
func TestTransferFails(t *testing.T) {
	tickets := make(chan string, 1)
	f := guarded(t, httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, transfers(t, tickets))
	f.wantRan(f.post("k"), http.StatusAccepted)
	if err := f.adopt(<-tickets).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantRan(f.post("k"), http.StatusAccepted)
	f.wantInterim(f.post("k"))
	if err := f.adopt(<-tickets).Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantProblem(f.post("k"), http.StatusConflict, "outcome-unknown")
}

// A repetition waits while the handler transfers its hold. It gets the response of the handler,
// which is 200 if the handler writes nothing. It gets 409 if the response of the handler is not
// recorded.
// Shows: T7
func TestTransferAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		write  func(http.ResponseWriter)
		status int
		want   func(f *fixture, a answer)
	}{
		"nothing": {func(http.ResponseWriter) {}, http.StatusOK, func(f *fixture, a answer) { f.wantReplayed(a, http.StatusOK) }},
		"own Retry-After": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(http.StatusAccepted)
		}, http.StatusAccepted, func(f *fixture, a answer) {
			if f.wantReplayed(a, http.StatusAccepted); a.header.Get("Retry-After") != "77" {
				f.t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
			}
		}},
		"not kept": {
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, http.StatusServiceUnavailable,
			func(f *fixture, a answer) { f.wantProblem(a, http.StatusConflict, "in-progress") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "not kept" {
				testlevel.Full(t) // the second request waits for two seconds
			}
			entered, leave := make(chan struct{}), make(chan struct{})
			f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-leave
				if _, err := guard.Ticket(r.Context(), httpmw.Key(r.Context()), time.Hour); err != nil {
					t.Error(err)
				}
				test.write(w)
			})
			first := f.start(t.Context(), "k")
			<-entered
			second := f.start(t.Context(), "k")
			<-f.events.waiting
			close(leave)
			f.wantRan(<-first, test.status)
			test.want(f, <-second)
		})
	}
}

// An interim answer is used only for a request with its key. A Claim of that key in a handler waits
// instead.
func TestTransferInside(t *testing.T) {
	tickets := make(chan string, 1)
	var locks *lockcore.Locker
	inner := ""
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if inner == "" {
			inner = httpmw.Key(r.Context())
			transfers(t, tickets)(w, r)
			return
		}
		_, _, err := locks.Claim(r.Context(), inner, lockcore.Claim{Terms: lockcore.Terms{Wait: 50 * time.Millisecond}})
		var busy *lockcore.BusyError
		if !errors.As(err, &busy) || busy.Waited < 50*time.Millisecond {
			t.Errorf("the Claim did not wait: %v", err)
		}
		_ = json.NewEncoder(w).Encode(busy != nil)
	})
	locks = f.locks
	f.wantRan(f.post("k"), http.StatusAccepted)
	f.wantRan(f.post("other"), http.StatusOK)
	_ = f.adopt(<-tickets).Release(context.Background())
}

// A repeat waits on another server, or on the same one, while the handler transfers its hold. It
// gets the interim answer as soon as that is stored. In virtual time any poll would take time.
func TestInterimAnswerWakesWaiters(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redistest.Bubble(t)
				var handlers []http.Handler
				begun, proceed, waits := make(chan struct{}), make(chan struct{}), lockcore.Terms{Wait: time.Hour}
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					<-proceed
					if _, err := guard.Ticket(r.Context(), httpmw.Key(r.Context()), time.Hour); err != nil {
						t.Error(err)
					}
					w.WriteHeader(http.StatusAccepted)
				})
				for range servers {
					locks, err := lockcore.New(server.Client(t), lockcore.Options{})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = locks.Close(context.Background()) })
					handlers = append(handlers, httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Terms: waits})(handler))
				}
				serve := func(h http.Handler) *httptest.ResponseRecorder {
					w := httptest.NewRecorder()
					r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("body"))
					r.Header.Set("Idempotency-Key", "k")
					h.ServeHTTP(w, r)
					return w
				}
				go serve(handlers[0])
				<-begun
				answers := make(chan *httptest.ResponseRecorder)
				for range 3 {
					go func() { answers <- serve(handlers[servers-1]) }()
				}
				time.Sleep(time.Minute + 300*time.Millisecond) // all of them wait, and no poll is due now
				synctest.Wait()
				start := time.Now()
				close(proceed)
				for range 3 {
					if a := <-answers; a.Code != http.StatusAccepted || a.Header().Get("Idempotent-Replayed") != "true" {
						t.Errorf("got %d %v", a.Code, a.Header())
					}
				}
				if d := time.Since(start); d > 0 {
					t.Errorf("the interim answer came after %v", d)
				}
			})
		})
	}
}
