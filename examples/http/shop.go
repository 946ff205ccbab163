package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// shop takes orders. It does not know that they may be repeated.
type shop struct {
	work   time.Duration
	tracer trace.Tracer
}

func (s shop) routes(mux *http.ServeMux, locks *lockcore.Locker) {
	once := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Keep: 10 * time.Minute})
	mux.Handle("POST /orders", once(http.HandlerFunc(s.create)))
}

// tenants replaces a check of credentials.
var tenants = map[string]string{"alice-token": "alice", "bob-token": "bob"}

// tenant returns the scope of a key: two tenants may use the same key.
func tenant(r *http.Request) (string, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, ok := tenants[token]
	if !ok {
		return "", errors.New("unknown bearer token")
	}
	return name, nil
}

type order struct {
	ID       string `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

func (s shop) create(w http.ResponseWriter, r *http.Request) {
	ctx, span := s.tracer.Start(r.Context(), "create order")
	defer span.End()
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" || o.Quantity < 1 {
		http.Error(w, "an order needs an item and a quantity", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(s.work):
	case <-ctx.Done(): // the lease is about to end: work after this may be done twice
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	o.ID = rand.Text()[:8]
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/"+o.ID)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o)
}

// invite prints requests that are ready to paste.
func invite(w io.Writer, url string) {
	const (
		alice = " -H 'Authorization: Bearer alice-token'"
		tea   = ` -d '{"item":"tea","quantity":2}'`
		milk  = ` -d '{"item":"milk","quantity":1}'`
	)
	key := func() string { return " -H 'Idempotency-Key: " + rand.Text()[:8] + "'" }
	mine := key()
	call := "curl -i " + url + "/orders"
	_, _ = fmt.Fprintf(w, "listening on %s\n", url)
	for _, c := range []struct{ why, line string }{
		{"the first call: 201", call + alice + mine + tea},
		{"the same again: 201, the same order, Idempotent-Replayed: true", call + alice + mine + tea},
		{"another body under the same key: 422", call + alice + mine + milk},
		{"another tenant with the same key: 201, another order", call + " -H 'Authorization: Bearer bob-token'" + mine + tea},
		{"no key: 400", call + alice + tea},
		{"no token: 401", call + mine + tea},
		{"the spans, newest first: 200", "curl -i " + url + "/debug/spans"},
	} {
		_, _ = fmt.Fprintf(w, "\n# %s\n%s\n", c.why, c.line)
	}
	both := call + alice + key() + tea
	_, _ = fmt.Fprintf(w, "\n# two at once: one runs, the other waits for its response, and links its span to the first one\n%s & %s & wait\n", both, both)
}
