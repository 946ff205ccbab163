//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
	"github.com/holdfast-go/holdfast/sqlonce"
)

// Under httpmw.Idempotent a repeat gets its answer from Redis. After Redis has lost its data, the
// repeat gets the same answer from the row, and there is one effect. The same holds for tasks under
// asynqmw.Once.
// Shows: Q14
func TestOnceBehindRedis(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		db := s.openEffects(t)
		r := redistest.Real(t)
		rdb := r.Client(t)
		locks, err := lockcore.New(rdb, lockcore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.WithoutCancel(t.Context()))

		next := int64(0)
		book := func(ctx context.Context, key string) (receipt, error) {
			res, err := s.value(ctx, db, key, sqlonce.Options{}, func(tx *sql.Tx) (receipt, error) {
				next++
				return receipt{Payment: next}, effect(ctx, tx, "paid")
			})
			return res.Value, err
		}
		scope := func(*http.Request) (string, error) { return "merchant", nil }
		handler := httpmw.Idempotent(locks, scope, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			paid, err := book(r.Context(), httpmw.Key(r.Context()))
			if err != nil {
				http.Error(w, "not paid", http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(paid)
		}))
		post := func() (body string, replayed bool) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader("{}"))
			req.Header.Set("Idempotency-Key", "7")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != http.StatusOK {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
			return w.Body.String(), w.Header().Get(httpmw.HeaderReplayed) == "true"
		}
		first, _ := post()
		second, replayed := post()
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		third, fromRedis := post()
		if second != first || !replayed || third != first || fromRedis || effects(t, db, "paid") != 1 {
			t.Errorf("%q, %q replayed %v, %q replayed %v, %d effects", first, second, replayed, third, fromRedis, effects(t, db, "paid"))
		}

		byID := func(_ context.Context, task *asynq.Task) (guard.Key, error) {
			return guard.Key{Class: "payment", ID: string(task.Payload())}, nil
		}
		task := asynqmw.Once(locks, byID, asynqmw.OnceOptions{})(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			key, err := byID(ctx, task)
			if err == nil {
				_, err = book(ctx, asynqmw.OnceKey(task.Type(), key))
			}
			return err
		}))
		for range 2 {
			if err := task.ProcessTask(t.Context(), asynq.NewTask("pay", []byte("8"))); err != nil {
				t.Error(err)
			}
			rdb.FlushAll(t.Context())
		}
		if n := effects(t, db, "paid"); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
}
