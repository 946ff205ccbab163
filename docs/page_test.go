package docs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/inspect/asynqtasks"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func onCall(r *http.Request) error {
	if r.Header.Get("X-User") != "ann" {
		return errors.New("only the person on call may do that")
	}
	return nil
}

func requireLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "" {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func withPage(mux *http.ServeMux, locks *lockcore.Locker, rdb *redis.Client) {
	page := inspect.New(locks, inspect.Options{
		Allow: onCall, // who may act; without it the page has no buttons
		Tasks: asynqtasks.Find(asynq.NewInspectorFromRedisClient(rdb)),
	})
	mux.Handle("/locks/", http.StripPrefix("/locks", requireLogin(page)))
}

// The page of operate.md: everyone who has logged in may read, and the person on call may act.
func TestPage(t *testing.T) {
	s := locktest.NewServer(t)
	rdb := redis.NewClient(s.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	locks := s.Locker(lockcore.Options{})
	le, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	defer le.Release(t.Context()) //nolint:errcheck // the test has ended
	mux := http.NewServeMux()
	withPage(mux, locks, rdb)
	for user, want := range map[string]struct {
		status int
		revoke bool
	}{"": {http.StatusUnauthorized, false}, "bob": {http.StatusOK, false}, "ann": {http.StatusOK, true}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/locks/key?kind=exclusive&key=account:42", http.NoBody)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, r); w.Code != want.status || strings.Contains(w.Body.String(), "Revoke…") != want.revoke {
			t.Errorf("%q: %d %s", user, w.Code, w.Body)
		}
	}
}
