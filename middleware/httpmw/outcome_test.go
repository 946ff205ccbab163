package httpmw_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
	"github.com/holdfast-go/holdfast/tracing"
)

// A request whose response is 500, or whose handler panics, has the outcome failed with the
// error.type of the conventions. It does not count as completed.
func TestOutcomesOfAnswers(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	for want, handler := range map[string]http.HandlerFunc{
		"completed":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"failed 500":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"failed panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		spans := tracetest.NewInMemoryExporter()
		o, err := tracing.New(tracing.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
		if err != nil {
			t.Fatal(err)
		}
		locks, err := lockcore.New(rdb, lockcore.Options{Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		once := httpmw.Idempotent(locks, func(*http.Request) (string, error) { return "alice", nil }, httpmw.IdempotentOptions{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "key-"+strings.ReplaceAll(want, " ", "-"))
		func() {
			defer func() { _ = recover() }()
			once(handler).ServeHTTP(httptest.NewRecorder(), r)
		}()
		if err := locks.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, a := range spans.GetSpans()[0].Attributes {
			switch a.Key {
			case "holdfast.outcome":
				got = a.Value.AsString() + got
			case "error.type":
				got += " " + a.Value.AsString()
			}
		}
		if got != want {
			t.Errorf("outcome %q, want %q", got, want)
		}
	}
}
