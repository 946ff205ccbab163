package docs_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// chain returns h behind Idempotent, for one caller.
func chain(t *testing.T, o httpmw.IdempotentOptions, h http.Handler) http.Handler {
	t.Helper()
	return httpmw.Idempotent(locktest.New(t), func(*http.Request) (string, error) { return "acme", nil }, o)(h)
}

// post sends body with the key "k" and returns the response. If h panics, the status is 0.
func post(h http.Handler, body string, header ...string) (w *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body)) //nolint:noctx // Background will do
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w = httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			w.Code = 0
		}
	}()
	h.ServeHTTP(w, r)
	return w
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotent-Replayed") == "true"
}

// A handler panics after it has begun its response. With recover outside of Idempotent the key is
// free. With recover inside, the incomplete response is recorded.
func TestRecoverInside(t *testing.T) {
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":`)
		panic("half way")
	})
	right := chain(t, httpmw.IdempotentOptions{}, broken)
	if w := post(recovered(right), "amount=1"); w.Code != http.StatusInternalServerError {
		t.Errorf("recover outside: %d %q", w.Code, w.Body)
	}
	if w := post(recovered(right), "amount=1"); replayed(w) {
		t.Error("recover outside: the panic was recorded")
	}
	wrong := chain(t, httpmw.IdempotentOptions{}, recovered(broken))
	post(wrong, "amount=1")
	if w := post(wrong, "amount=1"); !replayed(w) || w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), `{"status":`) {
		t.Errorf("recover inside: %d %q, replayed: %v", w.Code, w.Body, replayed(w))
	}
}

// With AtMostOnce a panic leaves the outcome unknown. With recover inside of Idempotent, a 500 is
// recorded as the outcome.
func TestRecoverInsideAtMostOnce(t *testing.T) {
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("after the effect") })
	right := recovered(chain(t, httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, broken))
	post(right, "amount=1")
	if w := post(right, "amount=1"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), httpmw.TypeOutcomeUnknown) {
		t.Errorf("recover outside: %d %s", w.Code, w.Body)
	}
	wrong := chain(t, httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, recovered(broken))
	post(wrong, "amount=1")
	if w := post(wrong, "amount=1"); w.Code != http.StatusInternalServerError || !replayed(w) {
		t.Errorf("recover inside: %d %s", w.Code, w.Body)
	}
}

// http.TimeoutHandler returns while its handler runs. Inside of Idempotent its 503 frees the key,
// and two requests run at the same time. Outside, the first request keeps the key.
func TestTimeoutHandler(t *testing.T) {
	for place, want := range map[string]int32{"inside": 2, "outside": 1} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				release := make(chan struct{})
				slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					running.Add(1)
					<-release
				})
				h := http.TimeoutHandler(chain(t, httpmw.IdempotentOptions{}, slow), time.Second, "slow")
				if place == "inside" {
					h = chain(t, httpmw.IdempotentOptions{}, http.TimeoutHandler(slow, time.Second, "slow"))
				}
				for range 2 {
					if w := post(h, "amount=1"); w.Code != http.StatusServiceUnavailable {
						t.Errorf("got %d", w.Code)
					}
				}
				synctest.Wait()
				if n := running.Load(); n != want {
					t.Errorf("%d run, want %d", n, want)
				}
				close(release)
			})
		})
	}
}

// CORS headers are not recorded. If the CORS middleware is inside of Idempotent, a replay lacks
// them.
func TestCORSInside(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for name, h := range map[string]http.Handler{
		"outside": cors(chain(t, httpmw.IdempotentOptions{}, ok)),
		"inside":  chain(t, httpmw.IdempotentOptions{}, cors(ok)),
	} {
		post(h, "amount=1", "Origin", "https://shop.example")
		w := post(h, "amount=1", "Origin", "https://shop.example")
		if got := w.Header().Get("Access-Control-Allow-Origin") != ""; !replayed(w) || got != (name == "outside") {
			t.Errorf("%s: replayed %v, allowed %v", name, replayed(w), got)
		}
	}
}

func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			next.ServeHTTP(w, r)
			return
		}
		plain := httptest.NewRecorder()
		next.ServeHTTP(plain, r)
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(plain.Body.Bytes())
		_ = z.Close()
	})
}

// A middleware inside of Idempotent compresses a response. The replay is compressed too, also for a
// client that does not accept this.
func TestCompressionInside(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") })
	for name, h := range map[string]http.Handler{
		"outside": gzipped(chain(t, httpmw.IdempotentOptions{}, ok)),
		"inside":  chain(t, httpmw.IdempotentOptions{}, gzipped(ok)),
	} {
		post(h, "amount=1", "Accept-Encoding", "gzip")
		if w := post(h, "amount=1"); (w.Body.String() == "paid") != (name == "outside") {
			t.Errorf("%s: %q", name, w.Body)
		}
	}
}

// A middleware outside of Idempotent reads the body, so the fingerprint does not contain it. With a
// Content-Length this is noticed, and the handler does not run. A chunked body looks like an empty
// one, so a request for another amount gets the first response. A middleware that restores the body
// has no such effect.
func TestBodyReadOutside(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for _, tt := range []struct {
		name          string
		front         func(r *http.Request)
		first, second int
	}{
		{"form parsed", func(r *http.Request) { _ = r.ParseForm() }, http.StatusInternalServerError, http.StatusInternalServerError},
		{"read", func(r *http.Request) { _, _ = io.ReadAll(r.Body) }, http.StatusInternalServerError, http.StatusInternalServerError},
		{"read, chunked", func(r *http.Request) {
			r.ContentLength = -1
			_, _ = io.ReadAll(r.Body)
		}, http.StatusCreated, http.StatusCreated},
		{"put back", func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}, http.StatusCreated, http.StatusUnprocessableEntity},
	} {
		once := chain(t, httpmw.IdempotentOptions{}, ok)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tt.front(r)
			once.ServeHTTP(w, r)
		})
		if w := post(h, "amount=1"); w.Code != tt.first {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.first)
		}
		if w := post(h, "amount=1000"); w.Code != tt.second {
			t.Errorf("%s: then %d, want %d", tt.name, w.Code, tt.second)
		}
	}
}
