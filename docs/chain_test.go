package docs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
	"github.com/holdfast-go/holdfast/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// serve answers payments on l until ctx ends.
func serve(ctx context.Context, l net.Listener, rdb *redis.Client, secret []byte, pay http.Handler) error {
	observer, err := tracing.New(tracing.Options{}) // spans and metrics, to the global OpenTelemetry providers
	if err != nil {
		return err
	}
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: "pay", Observer: observer})
	if err != nil {
		return err
	}
	once := httpmw.Idempotent(locks, merchant, httpmw.IdempotentOptions{
		Terms:      lockcore.Terms{Name: "payment", MaxHold: time.Minute}, // MaxHold: longer than the slowest payment
		Keep:       24 * time.Hour,                                        // not longer than your provider keeps the key that you pass on
		Secret:     secret,                                                // 32 random bytes, the same in every process
		MaxRequest: 64 << 10,
	})
	alone := httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{})
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/payments", signedIn(limited(once(alone(pay)))))
	srv := &http.Server{
		Handler:           recovered(logged(cors(mux))),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // a key is claimed when the body has been read
		WriteTimeout:      90 * time.Second, // longer than both waits (2 s each) and MaxHold together
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() // ends with Shutdown or by its error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	ctx = context.WithoutCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// In this order: requests end, then their keys are released, then the connections close.
	return errors.Join(err, srv.Shutdown(soon), locks.Close(ctx), rdb.Close())
}

// merchant returns the scope of a key: the caller that signedIn has authenticated. Two merchants
// never share a key.
func merchant(r *http.Request) (string, error) {
	name, ok := r.Context().Value(callerKey{}).(string)
	if !ok {
		return "", errors.New("not signed in")
	}
	return name, nil
}

type callerKey struct{}

// signedIn is the authentication. It refuses requests without valid credentials.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, name)))
	})
}

// recovered responds with 500 to a panic, except for http.ErrAbortHandler.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				slog.ErrorContext(r.Context(), "panic", "value", p)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// logged and limited are placeholders for an access log and a rate limit.
func logged(next http.Handler) http.Handler  { return next }
func limited(next http.Handler) http.Handler { return next }

// cors responds to preflights, and lets the page read the headers that it needs.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		if r.Header.Get("Origin") != "https://shop.example" {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", "https://shop.example")
		h.Set("Access-Control-Expose-Headers", "Idempotent-Replayed, Retry-After, Location")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "POST")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The program of the page makes one payment for two requests, and none without credentials. It
// responds to a preflight without a key, and ends without an error.
func TestServe(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	go func() { ended <- serve(ctx, l, rdb, bytes.Repeat([]byte{7}, 32), paid(&runs)) }() // ends when ctx does
	url := "http://" + l.Addr().String() + "/accounts/42/payments"

	asked := http.Header{"Origin": {"https://shop.example"}, "Access-Control-Request-Method": {"POST"}}
	if status, _ := call(t, http.MethodOptions, url, "", asked); status != http.StatusNoContent {
		t.Errorf("preflight: %d", status)
	}
	if status, _ := call(t, http.MethodPost, url, `{"amount":1}`, http.Header{"Idempotency-Key": {"k"}}); status != http.StatusUnauthorized {
		t.Errorf("no credentials: %d", status)
	}
	acme := http.Header{"Authorization": {"Bearer acme"}, "Origin": {"https://shop.example"}}
	if status, _ := call(t, http.MethodPost, url, `{"amount":1}`, acme); status != http.StatusBadRequest {
		t.Errorf("no key: %d", status)
	}
	acme.Set("Idempotency-Key", "k")
	for i, replayed := range []string{"", "true"} {
		status, h := call(t, http.MethodPost, url, `{"amount":1}`, acme)
		if status != http.StatusCreated || h.Get("Location") != "/payments/1" || h.Get("Idempotent-Replayed") != replayed ||
			h.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("request %d: %d %v", i+1, status, h)
		}
	}
	stop()
	if err := <-ended; err != nil || runs != 1 {
		t.Errorf("ended with %v after %d payments", err, runs)
	}
}

// paid returns a handler that counts its runs and panics unless both guards hold their keys.
func paid(runs *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*runs++
		guard.MustHold(r.Context(), "account:42")
		guard.MustHold(r.Context(), httpmw.Key(r.Context()))
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
	})
}

func call(t *testing.T, method, url, body string, h http.Header) (status int, answer http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h.Clone()
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	_, _ = io.Copy(io.Discard, a.Body)
	return a.StatusCode, a.Header
}
