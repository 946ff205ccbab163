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

// One charge runs at a time for each account. While a job holds the key of an account, requests for
// that account are refused, and requests for other accounts run.
func ExampleExclusive() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	account := httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{
		Terms:  lockcore.Terms{Wait: lockcore.NoWait}, // by default a request waits for 2 s
		Status: http.StatusLocked,
	})
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, held := guard.Token(r.Context(), "account:"+r.PathValue("id"))
		_, _ = fmt.Fprintln(w, "charged, alone:", held)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/charges", account(charge)) // account wraps the handler, not the mux

	send := func(id string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "POST", "/accounts/"+id+"/charges", nil))
		if w.Code == http.StatusOK {
			fmt.Print(id, ": ", w.Body)
		} else {
			fmt.Printf("%s: %d, repeat after %s s\n", id, w.Code, w.Header().Get("Retry-After"))
		}
	}
	err = guard.Exclusive(context.Background(), locks, "account:42", lockcore.Terms{}, func(context.Context) error {
		send("42")
		send("43")
		return nil
	})
	send("42")
	fmt.Println("job:", err)
	// Output:
	// 42: 423, repeat after 1 s
	// 43: charged, alone: true
	// 42: charged, alone: true
	// job: <nil>
}
