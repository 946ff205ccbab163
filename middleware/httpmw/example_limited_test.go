package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// At most 2 reports of a tenant are made at the same time, by all instances and jobs together.
func ExampleLimited() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	reports := httpmw.Limited(locks, httpmw.ByPathValue("reports", "tenant"), lockcore.Limit{N: 2}, httpmw.ShareOptions{
		Terms: lockcore.Terms{Wait: lockcore.NoWait}, // by default a request waits for 2 s
	})
	mux := http.NewServeMux()
	mux.Handle("POST /{tenant}/reports", reports(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))

	send := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "POST", "/acme/reports", nil))
		fmt.Println(w.Code)
	}
	// A job makes a report that takes both permits.
	_ = guard.Limited(context.Background(), locks, "reports:acme", lockcore.Limit{N: 2, Weight: 2}, lockcore.Terms{}, func(context.Context) error {
		send()
		return nil
	})
	send()
	// Output:
	// 429
	// 200
}

// Each tenant has its own limit.
func ExampleLimitedFunc() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	limits := map[string]int{"acme": 2, "globex": 10}
	var limit httpmw.LimitFunc = func(r *http.Request) (lockcore.Limit, error) {
		if n, ok := limits[r.PathValue("tenant")]; ok {
			return lockcore.Limit{N: n}, nil
		}
		return lockcore.Limit{}, errors.New("unknown tenant")
	}
	reports := httpmw.LimitedFunc(locks, httpmw.ByPathValue("reports", "tenant"), limit, httpmw.ShareOptions{})
	mux := http.NewServeMux()
	mux.Handle("POST /{tenant}/reports", reports(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, tenant := range []string{"acme", "initech"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "POST", "/"+tenant+"/reports", nil))
		fmt.Println(tenant, w.Code)
	}
	// Output:
	// acme 200
	// initech 500
}

// Reads of a price list run beside each other. While a job imports a new list, a read with NoWait
// is refused.
func ExampleShared() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	read := httpmw.Shared(locks, httpmw.ByPathValue("prices", "list"), httpmw.ShareOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	mux := http.NewServeMux()
	mux.Handle("GET /prices/{list}", read(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	send := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/prices/2026", nil))
		fmt.Println(w.Code)
	}
	_ = guard.Exclusive(context.Background(), locks, "prices:2026", lockcore.Terms{}, func(context.Context) error {
		send()
		return nil
	})
	send()
	// Output:
	// 409
	// 200
}

// A tenant may send 2 requests a minute, and learns when it may send the next one.
func ExampleThrottled() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	rate := lockcore.Rate{N: 2, Per: time.Minute, Burst: 2}
	mux := http.NewServeMux()
	mux.Handle("GET /{tenant}/orders", httpmw.Throttled(locks, httpmw.ByPathValue("orders", "tenant"), rate, httpmw.ThrottleOptions{})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for range 3 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/acme/orders", nil))
		fmt.Println(w.Code, w.Header().Get(httpmw.HeaderRateLimitPolicy), w.Header().Get(httpmw.HeaderRateLimit))
	}
	// Output:
	// 200 "orders";q=2;w=60 "orders";r=1;t=30
	// 200 "orders";q=2;w=60 "orders";r=0;t=30
	// 429 "orders";q=2;w=60 "orders";r=0;t=30
}

// Each tenant has its own rate.
func ExampleThrottledFunc() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	rates := map[string]int{"acme": 2, "globex": 10}
	var rate httpmw.RateFunc = func(r *http.Request) (lockcore.Rate, error) {
		return lockcore.Rate{N: rates[r.PathValue("tenant")]}, nil // 0 is an error: the response is 500
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{tenant}/orders", httpmw.ThrottledFunc(locks, httpmw.ByPathValue("orders", "tenant"), rate, httpmw.ThrottleOptions{})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, tenant := range []string{"acme", "initech"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/"+tenant+"/orders", nil))
		fmt.Println(tenant, w.Code)
	}
	// Output:
	// acme 200
	// initech 500
}
