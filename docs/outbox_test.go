package docs_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

type store struct{ db *sql.DB }

var errOtherPayment = errors.New("this key belongs to another payment")

// book writes the payment, its key and its message to the provider in one transaction: all of it, or nothing. It can be
// run again for the same key.
//
//	CREATE TABLE payments (id bigserial PRIMARY KEY, key text UNIQUE NOT NULL, account text NOT NULL, amount bigint NOT NULL);
//	CREATE TABLE outbox (payment bigint PRIMARY KEY REFERENCES payments, sent timestamptz);
func (s store) book(ctx context.Context, account string, amount int64) (id int64, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	key := httpmw.Key(ctx)
	err = tx.QueryRowContext(ctx, `INSERT INTO payments (key, account, amount) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO NOTHING RETURNING id`, key, account, amount).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) { // an earlier run has committed it, but its answer was not recorded
		err = tx.QueryRowContext(ctx, `SELECT id FROM payments WHERE key = $1 AND account = $2 AND amount = $3`,
			key, account, amount).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			err = errOtherPayment
		}
		return id, err
	}
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO outbox (payment) VALUES ($1)`, id); err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// deliver sends one message of the outbox. Any number of workers may have it in hand; one sends it.
func (s store) deliver(ctx context.Context, locks *lockcore.Locker, payment int64, send func(context.Context) error) error {
	_, err := guard.Once(ctx, locks, fmt.Sprintf("outbox:%d", payment), guard.OnceOptions{}, func(ctx context.Context) error {
		if err := send(ctx); err != nil { // with the payment's own key: between this line and the next one a worker may die
			return err
		}
		_, err := s.db.ExecContext(ctx, `UPDATE outbox SET sent = now() WHERE payment = $1`, payment)
		return err
	})
	return err
}

// table stands for the database: one payment that may be there already. It notes the first word of each statement.
type table struct {
	key    any
	amount any
	said   []string
}

func (t *table) Connect(context.Context) (driver.Conn, error) { return t, nil }
func (t *table) Driver() driver.Driver                        { return nil }
func (t *table) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (t *table) Close() error                                 { return nil }
func (t *table) Begin() (driver.Tx, error)                    { return t, nil }
func (t *table) Commit() error                                { t.said = append(t.said, "COMMIT"); return nil }
func (t *table) Rollback() error                              { return nil }

func (t *table) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	t.said = append(t.said, strings.Join(strings.Fields(query)[:3], " "))
	return driver.RowsAffected(1), nil
}

func (t *table) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	insert := strings.HasPrefix(query, "INSERT")
	found := t.key == args[0].Value
	if insert && !found {
		t.key, t.amount = args[0].Value, args[2].Value
	}
	return &rows{done: insert == found || !insert && t.amount != args[2].Value}, nil
}

type rows struct{ done bool }

func (r *rows) Columns() []string { return []string{"id"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(dst []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done, dst[0] = true, int64(17)
	return nil
}

// A run that died after its commit is repeated: the same payment, one message. Another amount under the same key is
// refused by the database, whatever Redis has forgotten.
func TestBook(t *testing.T) {
	db := &table{}
	s := store{sql.OpenDB(db)}
	defer func() { _ = s.db.Close() }()
	amounts := []int64{5, 5, 6}
	var got []string
	h := chain(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := s.book(r.Context(), "42", amounts[0])
		amounts = amounts[1:]
		got = append(got, fmt.Sprint(id, err))
		w.WriteHeader(http.StatusInternalServerError) // stands for the crash: nothing is recorded
	}))
	for range 3 {
		post(h, "")
	}
	if want := []string{"17 <nil>", "17 <nil>", "0 " + errOtherPayment.Error()}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if want := []string{"INSERT INTO outbox", "COMMIT"}; !slices.Equal(db.said, want) {
		t.Errorf("said %q", db.said)
	}
}

// What was delivered is not sent again; what failed is.
func TestDeliver(t *testing.T) {
	s := store{sql.OpenDB(&table{})}
	defer func() { _ = s.db.Close() }()
	locks, sent := locktest.New(t), 0
	for _, want := range []error{io.ErrUnexpectedEOF, nil, nil} {
		err := s.deliver(t.Context(), locks, 17, func(context.Context) error { sent++; return want })
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if sent != 2 {
		t.Errorf("sent %d times", sent)
	}
}
