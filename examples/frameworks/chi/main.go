// Command chi serves payments with chi. chi uses the middlewares of net/http, so the middlewares of
// httpmw need no adapter.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() { bank.Main(routes) }

func routes(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
	once := httpmw.Idempotent(locks, bank.Merchant, o)
	alone := httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{})
	r := chi.NewRouter()
	r.Use(audit(b), middleware.Recoverer)
	r.With(once, alone).Post("/accounts/{id}/payments", pay(b))
	r.With(once).Post("/accounts/{id}/statements", statement)
	return r
}

func pay(b *bank.Bank) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var p bank.Payment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p, err := b.Charge(r.Context(), chi.URLParam(r, "id"), p.Amount)
		if err != nil {
			http.Error(w, err.Error(), bank.Status(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(p)
	}
}

// statement writes one line at a time.
func statement(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/csv")
	for line := range 3 {
		_, _ = fmt.Fprintln(w, line)
		_ = http.NewResponseController(w).Flush()
	}
}

// audit uses the ctx of the request after the response.
func audit(b *bank.Bank) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			b.Audit(r.Context())
		})
	}
}
