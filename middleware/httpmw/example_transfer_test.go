package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The handler transfers its hold to a job and responds with 202. Repetitions get that response
// until the job, which may be in another process, completes the request.
func ExampleComplete() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several processes: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	jobs := make(chan string, 1)
	tenant := func(*http.Request) (string, error) { return "tenant", nil }
	handler := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ticket, err := guard.Ticket(r.Context(), httpmw.Key(r.Context()), time.Hour)
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		jobs <- ticket // a call that sends it to a queue needs guard.Detach(r.Context())
		w.WriteHeader(http.StatusAccepted)
	}))
	post := func() {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/orders", http.NoBody)
		r.Header.Set(httpmw.HeaderKey, "order-7")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body)))
	}
	post()
	post()

	ctx := context.Background()
	lease, err := locks.Adopt(ctx, <-jobs, lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	if err := httpmw.Complete(ctx, lease, http.StatusCreated, nil, []byte("order 7")); err != nil {
		panic(err)
	}
	post()
	// Output:
	// 202
	// 202
	// 201 order 7
}
