package docs_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// TestRecorded checks the page's table of recorded responses: for each status and setting, whether
// a repetition is replayed.
func TestRecorded(t *testing.T) {
	final, all, success := httpmw.IdempotentOptions{}, httpmw.IdempotentOptions{Store: httpmw.StoreAll}, httpmw.IdempotentOptions{Store: httpmw.StoreSuccess}
	most := httpmw.IdempotentOptions{Mode: guard.AtMostOnce}
	mostSuccess := httpmw.IdempotentOptions{Mode: guard.AtMostOnce, Store: httpmw.StoreSuccess}
	for _, tt := range []struct {
		statuses                            []int
		final, all, success, most, mostSucc bool
	}{
		{[]int{200, 201, 202, 204}, true, true, true, true, true},
		{[]int{303, 400, 402, 404, 409, 422, 423}, true, true, false, true, false},
		{[]int{401, 403, 408, 425, 429}, false, true, false, false, false},
		{[]int{500, 502, 503, 504}, false, true, false, true, true},
	} {
		for _, status := range tt.statuses {
			for i, o := range []httpmw.IdempotentOptions{final, all, success, most, mostSuccess} {
				h := chain(t, o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
				post(h, "amount=1")
				if want := []bool{tt.final, tt.all, tt.success, tt.most, tt.mostSucc}[i]; replayed(post(h, "amount=1")) != want {
					t.Errorf("status %d, setting %d: replayed is %v", status, i, !want)
				}
			}
		}
	}
}

// A response that is not recorded frees the key with its fingerprint, so the repetition may have
// another body. The count of attempts stays.
func TestFreedKey(t *testing.T) {
	var attempts []int
	h := chain(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context()))
		if attempts = append(attempts, attempt); tookOver {
			t.Error("took over")
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	post(h, "amount=1")
	if w := post(h, "amount=2"); w.Code != http.StatusBadGateway || len(attempts) != 2 || attempts[1] != 2 {
		t.Errorf("%d after attempts %v", w.Code, attempts)
	}
}

// An outer http.MaxBytesHandler with a smaller limit causes the same response as MaxRequest.
func TestMaxBytesOutside(t *testing.T) {
	h := chain(t, httpmw.IdempotentOptions{}, http.NotFoundHandler())
	w := post(http.MaxBytesHandler(h, 10), strings.Repeat("a", 11))
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), httpmw.TypeBodyTooLarge) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The authorization is inside of Idempotent. A replay does not notice that a permission was lost.
func TestAuthorizationInside(t *testing.T) {
	allowed := true
	check := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	for name, want := range map[string]int{"inside": http.StatusCreated, "outside": http.StatusForbidden} {
		h := chain(t, httpmw.IdempotentOptions{}, check(ok))
		if name == "outside" {
			h = check(chain(t, httpmw.IdempotentOptions{}, ok))
		}
		allowed = true
		post(h, "amount=1")
		allowed = false
		if w := post(h, "amount=1"); w.Code != want {
			t.Errorf("%s: %d, want %d", name, w.Code, want)
		}
	}
}
