//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
	"github.com/holdfast-go/holdfast/sqlonce"
)

type store struct{ db *sql.DB }

// book writes the payment and its message to the provider in one transaction, once for the key of the request. A repeat
// returns the same id.
//
//	CREATE TABLE payments (id bigserial PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL);
//	CREATE TABLE outbox (payment bigint PRIMARY KEY REFERENCES payments, sent timestamptz);
func (s store) book(ctx context.Context, account string, amount int64) (int64, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	o := sqlonce.Options{Fingerprint: idempotency.Fingerprint(nil, []byte(account), fmt.Append(nil, amount))}
	booked, err := sqlonce.DoValue(ctx, sqlonce.Postgres(tx), httpmw.Key(ctx), o, func(ctx context.Context) (id int64, err error) {
		err = tx.QueryRowContext(ctx, `INSERT INTO payments (account, amount) VALUES ($1, $2) RETURNING id`, account, amount).Scan(&id)
		if err != nil {
			return 0, err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO outbox (payment) VALUES ($1)`, id)
		return id, err
	})
	if err != nil {
		return 0, err
	}
	return booked.Value, tx.Commit()
}

// A run that dies after its commit is repeated: there is one payment and one message. The database
// refuses another amount with the same key, although Redis has no record.
func TestPayments(t *testing.T) {
	s := store{postgres.need(t).open(t)}
	exec1(t, s.db, "CREATE TABLE payments (id bigserial PRIMARY KEY, account text NOT NULL, amount bigint NOT NULL)")
	exec1(t, s.db, "CREATE TABLE outbox (payment bigint PRIMARY KEY REFERENCES payments, sent timestamptz)")
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	amounts, got := []int64{5, 5, 6}, []string(nil)
	scope := func(*http.Request) (string, error) { return "merchant", nil }
	handler := httpmw.Idempotent(locks, scope, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := s.book(r.Context(), "42", amounts[0])
		amounts = amounts[1:]
		_, other := errors.AsType[*lockcore.MismatchError](err)
		got = append(got, fmt.Sprint(id, err == nil, other))
		w.WriteHeader(http.StatusInternalServerError) // simulates the crash: no answer is recorded
	}))
	for range 3 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "7")
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}
	if want := []string{"1 true false", "1 true false", "0 false true"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	var payments, messages int
	if err := s.db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM payments), (SELECT count(*) FROM outbox)").Scan(&payments, &messages); err != nil || payments != 1 || messages != 1 {
		t.Errorf("%d payments, %d messages, %v", payments, messages, err)
	}
}
