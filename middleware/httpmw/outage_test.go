package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// bubble has a Locker whose connections pass through faults. It runs in virtual time.
type bubble struct {
	locks  *lockcore.Locker
	faults *faulty.Network
}

func inBubble(t *testing.T, test func(*testing.T, bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := bubble{faults: faulty.New(t)}
		rdb := redistest.Bubble(t).Client(t, func(o *redis.Options) {
			o.Dialer = lookout.dial(b.faults.Dial(o.Dialer), new(atomic.Int64))
		})
		locks, err := lockcore.New(rdb, lockcore.Options{NoGroups: true, Observer: lookout.observer})
		if err != nil {
			t.Fatal(err)
		}
		b.locks = locks
		defer func() { _ = locks.Close(context.Background()) }()
		test(t, b)
	})
}

// post calls h directly with a request.
func post(h http.Handler) answer {
	r := httptest.NewRequestWithContext(context.Background(), "POST", "/orders", strings.NewReader(secret("body")))
	r.Header.Set("Idempotency-Key", secretKey("k"))
	r.Header.Set("X-Tenant", secretTenant("a"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Result().Header, w.Result().Trailer, w.Body.String()}
}

func TestRedisAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(order(&runs))
		b.faults.Down()
		a := post(h)
		if a.status != 503 || a.problem() != "unavailable" || a.header.Get("Retry-After") != "5" || runs.Load() != 0 {
			t.Errorf("got %d %q, Retry-After %q, %d runs", a.status, a.body, a.header.Get("Retry-After"), runs.Load())
		}
		b.faults.Heal()
		if a := post(h); a.status != 201 || a.replayed() {
			t.Errorf("got %d %q after the outage", a.status, a.body)
		}
	})
}

func TestLockerClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(http.NotFoundHandler())
		if a := post(h); a.status != 404 {
			t.Errorf("before: got %d %q", a.status, a.body)
		}
		if err := b.locks.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := post(h); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})
}

// Redis is unavailable when a response is recorded. The client gets the response within 1.1 s.
// The Locker continues to store the record, and a repetition after the outage is replayed.
// Shows: H5
func TestRedisAwayWhenTheAnswerIsStored(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		next := order(&runs)
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.faults.Silence()
			next(w, r)
		}))
		start := time.Now()
		a := post(h)
		if took := time.Since(start); a.status != 201 || took > 1100*time.Millisecond {
			t.Errorf("got %d after %v", a.status, took)
		}
		time.Sleep(3 * time.Second)
		b.faults.Heal()
		time.Sleep(3 * time.Second)
		if a := post(h); !a.replayed() || a.body != orderText(1, "body") {
			t.Errorf("got %d %q, replayed %v", a.status, a.body, a.replayed())
		}
	})
}

// Redis stores a record, and its reply is lost. The response is sent, and a repetition is replayed.
func TestReplyToTheRecordIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(order(&runs))
		lost := b.faults.CutReply(faulty.Script("complete"))
		if a := post(h); a.status != 201 {
			t.Errorf("got %d", a.status)
		}
		select {
		case <-lost.Struck():
		default:
			t.Fatal("no reply was lost")
		}
		if a := post(h); !a.replayed() || runs.Load() != 1 {
			t.Errorf("got %d %q, replayed %v, %d runs", a.status, a.body, a.replayed(), runs.Load())
		}
	})
}

func TestMaxHoldIsFiveMinutesByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		start := time.Now()
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if cause := context.Cause(r.Context()); !errors.Is(cause, lockcore.ErrMaxHold) {
				t.Errorf("the handler's ctx ended by %v", cause)
			}
			w.WriteHeader(http.StatusGatewayTimeout)
		}))
		if a := post(h); a.status != 504 || time.Since(start) != 5*time.Minute {
			t.Errorf("got %d after %v", a.status, time.Since(start))
		}
	})
}

// A handler ignores its ctx. The client gets its response, and the response is recorded, because no
// other run has begun.
func TestHandlerIgnoresItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		h := idempotent(b.locks, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			time.Sleep(10 * time.Minute)
			w.WriteHeader(http.StatusCreated)
		}))
		if a := post(h); a.status != 201 || a.replayed() {
			t.Errorf("got %d", a.status)
		}
		if a := post(h); a.status != 201 || !a.replayed() || runs.Load() != 1 {
			t.Errorf("got %d, replayed %v, %d runs", a.status, a.replayed(), runs.Load())
		}
	})
}
