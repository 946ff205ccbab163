package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A client that received no response sends its order again. The handler runs once, and both
// responses have the same body.
func ExampleIdempotent() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	tenant := func(r *http.Request) (string, error) { // the caller that the key belongs to
		if user, _, ok := r.BasicAuth(); ok {
			return user, nil
		}
		return "", errors.New("no credentials")
	}
	orders := 0
	create := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d", orders)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(create))

	send := func(body string) {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/orders", strings.NewReader(body))
		r.SetBasicAuth("alice", "secret")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusCreated {
			fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
		} else {
			fmt.Println(w.Code)
		}
	}
	send("tea")
	send("tea")
	send("milk") // another request with the same key
	// Output:
	// 201 order 1, replayed: ""
	// 201 order 1, replayed: "true"
	// 422
}
