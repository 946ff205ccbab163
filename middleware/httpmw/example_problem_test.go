package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// IdempotentOptions.Problem gets every refusal. Problem.Err is for the log, and the other fields
// are for the client.
func ExampleWriteProblem() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	noScope := func(*http.Request) (string, error) { return "", nil } // wrong: it does not name the caller
	orders := httpmw.Idempotent(locks, noScope, httpmw.IdempotentOptions{
		Problem: func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
			fmt.Println("log:", p.Err)
			httpmw.WriteProblem(w, r, p)
		},
	})(http.NotFoundHandler())

	r := httptest.NewRequestWithContext(context.Background(), "POST", "/orders", nil)
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	w := httptest.NewRecorder()
	orders.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output:
	// log: httpmw: scope is empty
	// 500 application/problem+json
}
