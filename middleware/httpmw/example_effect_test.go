package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// With AtMostOnce a 5xx is recorded, because the request may have had an effect. A handler that
// fails before its effect calls NoEffect. Then the client can repeat the request.
func ExampleNoEffect() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	tenant := func(*http.Request) (string, error) { return "acme", nil }
	databaseDown := true
	pay := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Mode: guard.AtMostOnce})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if databaseDown {
				httpmw.NoEffect(r.Context())
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))

	send := func() {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/payments", nil)
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Printf("%d, replayed: %q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	send()
	databaseDown = false
	send()
	send()
	// Output:
	// 503, replayed: ""
	// 201, replayed: ""
	// 201, replayed: "true"
}

// The provider did not answer, so the payment may have been made. The next request asks it.
func ExampleUnknown() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	pay := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
			w.WriteHeader(http.StatusCreated) // after it has asked the provider
			return
		}
		httpmw.Unknown(r.Context())
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	for range 2 {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/payments", nil)
		r.Header.Set(httpmw.HeaderKey, "payment-7")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Print(w.Code, " ")
	}
	// Output: 504 201
}
