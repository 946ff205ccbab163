package httpmw_test

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The program in the documentation of the package.
func Example() { //nolint:testableexamples // it serves until it is stopped
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
	if err != nil {
		log.Fatal(err)
	}
	tenant := func(*http.Request) (string, error) { return "acme", nil } // from the credentials
	create := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "order of", time.Now())
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(create))
	log.Fatal(http.ListenAndServe("localhost:8080", mux))
}
