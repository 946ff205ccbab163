package docs_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// callPartner runs send while at most 3 calls of the partner run, in all processes.
func callPartner(ctx context.Context, locks *lockcore.Locker, partner string, send func(context.Context) error) error {
	terms := lockcore.Terms{Name: "partner", Wait: time.Minute}
	return guard.Limited(ctx, locks, "partner:"+partner, lockcore.Limit{N: 3}, terms, send)
}

// reports runs at most 3 tasks of the type at a time, on all workers together.
func reports(mux *asynq.ServeMux, locks *lockcore.Locker, handler asynq.Handler) {
	mux.Handle("report", asynqmw.Limited(locks, asynqmw.ByType(), lockcore.Limit{N: 3}, asynqmw.ShareOptions{})(handler))
}

// callAtRate runs send at most 20 times in any second, in all processes.
func callAtRate(ctx context.Context, locks *lockcore.Locker, partner string, send func(context.Context) error) error {
	rate := lockcore.Rate{N: 17, Burst: 2} // 17 + 2 − 1 = 18, and 2 that reach the partner late
	return guard.Throttled(ctx, locks, "calls:"+partner, rate, lockcore.ThrottleOptions{Wait: time.Minute}, send)
}

// ofTenant bounds the requests of each tenant, and answers 429 with Retry-After.
func ofTenant(locks *lockcore.Locker, next http.Handler) http.Handler {
	perMinute := lockcore.Rate{N: 91, Per: time.Minute, Burst: 10}
	return httpmw.Throttled(locks, httpmw.ByPathValue("tenant", "tenant"), perMinute, httpmw.ThrottleOptions{})(next)
}

// callPolitely sends req, and pauses the partner's key for as long as the partner asks.
func callPolitely(ctx context.Context, locks *lockcore.Locker, req *http.Request) error {
	rate := lockcore.Rate{N: 17, Burst: 2}
	return guard.Throttled(ctx, locks, "calls:acme", rate, lockcore.ThrottleOptions{}, func(ctx context.Context) error {
		res, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if d, ok := httpmw.RetryAfter(res); ok {
			return guard.Paused(errors.New("partner: "+res.Status), d)
		}
		return nil
	})
}

// A partner answers 429 and asks to wait a second. The next call reaches it after that.
func TestPolitely(t *testing.T) {
	var at []time.Time
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if at = append(at, time.Now()); len(at) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer partner.Close()
	locks := locktest.New(t)
	for _, want := range []bool{false, true} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, partner.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := callPolitely(t.Context(), locks, req); (err == nil) != want {
			t.Errorf("%v", err)
		}
	}
	if len(at) != 2 || at[1].Sub(at[0]) < time.Second {
		t.Errorf("the calls came at %v", at)
	}
}

// A partner is called at most 20 times in a second, and a tenant gets 429 after its burst.
func TestAtRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		var calls sync.WaitGroup
		begin := time.Now()
		for range 25 {
			calls.Go(func() {
				if err := callAtRate(t.Context(), locks, "acme", func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(begin); took < time.Second || took > 1400*time.Millisecond {
			t.Errorf("25 calls took %v", took)
		}
		mux := http.NewServeMux()
		mux.Handle("/{tenant}", ofTenant(locks, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		var requests sync.WaitGroup
		var served, refused atomic.Int64
		for range 20 {
			requests.Go(func() {
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/acme", nil))
				switch {
				case w.Code == http.StatusOK:
					served.Add(1)
				case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
					refused.Add(1)
				}
			})
		}
		requests.Wait()
		if served.Load() != 13 || refused.Load() != 7 { // three more begin within the 2 s of the wait
			t.Errorf("%d requests were served and %d refused, want 13 and 7", served.Load(), refused.Load())
		}
	})
}

// callAsTenant runs send while at most 3 calls of the tenant and 20 of all tenants run.
func callAsTenant(ctx context.Context, locks *lockcore.Locker, tenant string, send func(context.Context) error) error {
	limits := []guard.KeyLimit{
		{Key: "tenant:" + tenant, Limit: lockcore.Limit{N: 3}},
		{Key: "tenants", Limit: lockcore.Limit{N: 20}},
	}
	return guard.LimitedAll(ctx, locks, limits, lockcore.Terms{Name: "tenant", Wait: time.Minute}, send)
}

// crowd counts how many calls are inside at the same time.
type crowd struct{ now, most atomic.Int64 }

func (c *crowd) stay() {
	now := c.now.Add(1)
	for m := c.most.Load(); m < now && !c.most.CompareAndSwap(m, now); m = c.most.Load() {
	}
	time.Sleep(time.Millisecond)
	c.now.Add(-1)
}

// At most 3 of 12 calls of a partner are inside, and none during the maintenance of the partner.
// The same limit holds for 12 tasks of a type.
func TestAtMostN(t *testing.T) {
	locks := locktest.New(t)
	var inside crowd
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			if err := callPartner(t.Context(), locks, "acme", func(context.Context) error { inside.stay(); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	maintain := func(context.Context) error {
		if n := inside.now.Load(); n != 0 {
			t.Errorf("%d calls are inside during the maintenance", n)
		}
		return nil
	}
	ctx := t.Context()
	terms := lockcore.Terms{Name: "partner", Wait: 5 * time.Minute} // longer than the calls that run
	err := guard.Exclusive(ctx, locks, "partner:acme", terms, maintain)
	if err != nil {
		t.Error(err)
	}
	calls.Wait()

	mux := asynq.NewServeMux()
	reports(mux, locks, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { inside.stay(); return nil }))
	for range 12 {
		calls.Go(func() {
			if err := mux.ProcessTask(t.Context(), asynq.NewTask("report", nil)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if inside.most.Load() > 3 {
		t.Errorf("%d calls were inside", inside.most.Load())
	}
}

// At most 3 of 12 calls of a tenant are inside, and at most 20 of 120 calls of all tenants.
func TestSeveralLimits(t *testing.T) {
	locks := locktest.New(t)
	var all atomic.Int64
	var tenants [10]crowd
	var calls sync.WaitGroup
	for i := range 12 * len(tenants) {
		one := &tenants[i%len(tenants)]
		calls.Go(func() {
			err := callAsTenant(t.Context(), locks, strconv.Itoa(i%len(tenants)), func(context.Context) error {
				defer all.Add(-1)
				if n := all.Add(1); n > 20 {
					t.Errorf("%d calls are inside", n)
				}
				one.stay()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for i := range tenants {
		if n := tenants[i].most.Load(); n > 3 {
			t.Errorf("%d calls of tenant %d were inside", n, i)
		}
	}
}
