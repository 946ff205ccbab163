package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Clients must send a UUID, so that two of them do not choose the same key by chance.
func ExampleUUIDKey() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	orders := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{ValidKey: httpmw.UUIDKey})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for _, key := range []string{"order-7", "8e03978e-40d5-43dd-bc93-6894a57f9324"} {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/orders", nil)
		r.Header.Set(httpmw.HeaderKey, key)
		w := httptest.NewRecorder()
		orders.ServeHTTP(w, r)
		fmt.Println(key, w.Code)
	}
	// Output:
	// order-7 400
	// 8e03978e-40d5-43dd-bc93-6894a57f9324 201
}

// A header with a secret is not recorded, so a replay does not have it.
func ExampleIdempotentOptions_omitHeaders() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	orders := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{OmitHeaders: []string{"X-Session"}})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/orders/7")
			w.Header().Set("X-Session", "secret")
		}))
	for range 2 {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/orders", nil)
		r.Header.Set(httpmw.HeaderKey, "order-7")
		w := httptest.NewRecorder()
		orders.ServeHTTP(w, r)
		fmt.Printf("%q %q\n", w.Header().Get("Location"), w.Header().Get("X-Session"))
	}
	// Output:
	// "/orders/7" "secret"
	// "/orders/7" ""
}
