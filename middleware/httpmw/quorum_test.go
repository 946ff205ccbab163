package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// On a majority of servers, Exclusive works as on one server. Idempotent, Shared and Limited need one
// Redis: no request runs, each response is 500, and the Observer hears why, once.
func TestQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := new(locktest.Recorder)
		locks, err := lockcore.NewQuorum(redistest.Masters(t), lockcore.Options{Observer: heard})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		var causes []error
		note := func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
			causes = append(causes, p.Err)
			httpmw.WriteProblem(w, r, p)
		}
		ask := func(h http.Handler) int {
			mux := http.NewServeMux()
			mux.Handle("POST /accounts/{id}", h)
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/accounts/42", http.NoBody)
			r.Header.Set("Idempotency-Key", "8e03978e")
			mux.ServeHTTP(w, r)
			return w.Code
		}
		exclusive := httpmw.Exclusive(locks, byAccount, httpmw.ExclusiveOptions{Terms: noWait, Problem: note})
		ran := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		inside := 0
		code := ask(exclusive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside = ask(exclusive(ran)) // not with the ctx of r, so it is another request
			ran(w, r)
		})))
		if code != http.StatusCreated || inside != http.StatusConflict {
			t.Errorf("Exclusive: %d, while it runs %d", code, inside)
		}
		for name, guard := range map[string]func(http.Handler) http.Handler{
			"Idempotent": httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Problem: note}),
			"Shared":     httpmw.Shared(locks, byAccount, httpmw.ShareOptions{Problem: note}),
			"Limited":    httpmw.Limited(locks, byAccount, lockcore.Limit{N: 2}, httpmw.ShareOptions{Problem: note}),
		} {
			before := len(locktest.EventsOf[event.Misconfigured](heard))
			for range 2 {
				causes = nil
				if code := ask(guard(ran)); code != http.StatusInternalServerError || len(causes) != 1 || !isUnsupported(causes[0]) {
					t.Errorf("%s: %d, %v", name, code, causes)
				}
			}
			if got := locktest.EventsOf[event.Misconfigured](heard)[before:]; len(got) != 1 || !strings.Contains(got[0].Problem, "use one Redis") {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

func isUnsupported(err error) bool {
	return errors.Is(err, lockcore.ErrUnsupported) && errors.Is(err, lockcore.ErrNotRun)
}
