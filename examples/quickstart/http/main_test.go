package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/locktest"
)

// A repeated order gets the recorded response. The same key of another caller is another order, and
// a request without credentials is refused.
func TestAPI(t *testing.T) {
	h := api(locktest.New(t))
	post := func(user string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("tea"))
		r.Header.Set("Idempotency-Key", "7")
		if user != "" {
			r.SetBasicAuth(user, "secret")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	code, order := post("alice")
	if again, repeated := post("alice"); code != http.StatusCreated || again != code || repeated != order {
		t.Errorf("%d %q, then %d %q", code, order, again, repeated)
	}
	if code, another := post("bob"); code != http.StatusCreated || another == order {
		t.Errorf("another caller: %d %q", code, another)
	}
	if code, text := post(""); code != http.StatusUnauthorized {
		t.Errorf("without credentials: %d %q", code, text)
	}
}
