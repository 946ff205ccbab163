// Command http is a small shop whose POST /orders is safe to repeat.
//
//	go run ./examples/http                        on a Redis inside the process
//	go run ./examples/http -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It serves until it is interrupted (Ctrl-C), and prints requests to paste into another terminal. Its
// page /locks/ shows their keys.
// examples/observability shows the spans of such requests.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() { program().Main() }

func program() stage.Program {
	var addr string
	var s shop
	return stage.Program{
		Name: "http",
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&addr, "addr", "127.0.0.1:8080", "`host:port` to listen on")
			f.DurationVar(&s.work, "work", 500*time.Millisecond, "how long an order takes")
		},
		Play: func(ctx context.Context, st *stage.Stage) error {
			node, err := st.Node(lockcore.Options{})
			if err != nil {
				return err
			}
			return stage.Serve(ctx, addr, s.routes(node.Locks), func(url string) { invite(st.Out, url) })
		},
	}
}

// shop takes orders. It does not know that they may be repeated.
type shop struct{ work time.Duration }

func (s shop) routes(locks *lockcore.Locker) http.Handler {
	o := httpmw.IdempotentOptions{Keep: 10 * time.Minute}
	once := httpmw.Idempotent(locks, tenant, o)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once(http.HandlerFunc(s.create)))
	// Anyone may read it here: in production a login is in front.
	mux.Handle("/locks/", http.StripPrefix("/locks", inspect.New(locks, inspect.Options{HTTPKey: o.KeyOf})))
	return mux
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
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" || o.Quantity < 1 {
		http.Error(w, "an order needs an item and a quantity", http.StatusBadRequest)
		return
	}
	if stage.Sleep(r.Context(), s.work) != nil { // the lease is about to end: work after this may be done twice
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	o.ID = rand.Text()[:8]
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/"+o.ID)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o)
}
