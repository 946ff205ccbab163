package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// settle inspects the key of a client's request, and clears it if the provider has not charged.
// charged asks the provider. locks has the API's Prefix, and o its Secret.
func settle(ctx context.Context, locks *lockcore.Locker, o httpmw.IdempotentOptions, clientKey string,
	charged func(ctx context.Context, key string) (bool, error),
) error {
	// Scope, method and path are those that the API received. key is the value that httpmw.Key returned to the handler.
	key, err := o.KeyOf("acme", "POST", "/accounts/42/payments", clientKey)
	if err != nil {
		return err
	}
	e, err := idempotency.Lookup(ctx, locks, key) // runs nothing, changes nothing
	if err != nil {
		return err
	}
	fmt.Printf("%s, run %d\n", e.State, e.Attempt) // and e.Holder, e.HeldFor, e.KeepLeft
	if e.State != lockcore.StateAbandoned {
		return nil // free: no run is known for this scope, path and Secret. held: wait. done: a repeat gets the answer, if it was kept
	}
	yes, err := charged(ctx, key)
	if err != nil || yes {
		return err // do not clear the key: a repeat would charge again
	}
	return idempotency.Clear(ctx, locks, key, e) // returns an error if a repeat has run meanwhile; otherwise the next repeat runs
}

// send is a client of h behind recovered.
func send(h http.Handler) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/accounts/42/payments", strings.NewReader(`{"amount":1}`))
	r.Header.Set("Idempotency-Key", "8e03978e")
	w := httptest.NewRecorder()
	recovered(h).ServeHTTP(w, r)
	fmt.Println(w.Code)
}

func Example_settle() {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
	locks, err := lockcore.New(rdb, lockcore.Options{Prefix: "pay"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer func() { _ = locks.Close(ctx) }()

	o := httpmw.IdempotentOptions{Mode: guard.AtMostOnce, Secret: []byte("of the API")}
	runs := 0
	pay := httpmw.Idempotent(locks, func(*http.Request) (string, error) { return "acme", nil }, o)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if runs++; runs == 1 {
				panic("in mid-payment")
			}
		}))
	send(pay)
	send(pay)
	err = settle(ctx, locks, o, "8e03978e", func(context.Context, string) (bool, error) { return false, nil })
	fmt.Println("settled:", err)
	send(pay)
	err = settle(ctx, locks, o, "8e03978e", nil)
	fmt.Println("settled:", err)
	// Output:
	// 500
	// 409
	// abandoned, run 1
	// settled: <nil>
	// 200
	// done, run 1
	// settled: <nil>
}

// A key has the length and the alphabet that the page states. Another Secret, scope, method or path
// makes another key.
func TestKeyText(t *testing.T) {
	o := httpmw.IdempotentOptions{}
	first, err := o.KeyOf("acme", "POST", "/payments", "k")
	if err != nil || len(first) != 48 || strings.Trim(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_:") != "" {
		t.Errorf("%q, %v", first, err)
	}
	for _, other := range []struct {
		o                   httpmw.IdempotentOptions
		scope, method, path string
	}{
		{httpmw.IdempotentOptions{Secret: []byte("s")}, "acme", "POST", "/payments"},
		{o, "acme2", "POST", "/payments"},
		{o, "acme", "PATCH", "/payments"},
		{o, "acme", "POST", "/v2/payments"},
	} {
		if key, err := other.o.KeyOf(other.scope, other.method, other.path, "k"); err != nil || key == first {
			t.Errorf("%v: %q, %v", other, key, err)
		}
	}
}

// NoEffect frees the key with any mode and status.
func TestNoEffect(t *testing.T) {
	for _, o := range []httpmw.IdempotentOptions{{}, {Store: httpmw.StoreAll}, {Mode: guard.AtMostOnce}} {
		for _, status := range []int{http.StatusCreated, http.StatusBadRequest, http.StatusServiceUnavailable} {
			h := chain(t, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				httpmw.NoEffect(r.Context())
				w.WriteHeader(status)
			}))
			post(h, "amount=1")
			if w := post(h, "amount=1"); w.Code != status || replayed(w) {
				t.Errorf("%+v: %d, replayed %v", o, w.Code, replayed(w))
			}
		}
	}
}

// Exclusive is inside of Idempotent. While the account is busy, the response is a refusal that is
// not recorded. A replay does not wait for the account.
func TestExclusiveInside(t *testing.T) {
	locks := locktest.New(t)
	once := httpmw.Idempotent(locks, func(*http.Request) (string, error) { return "acme", nil }, httpmw.IdempotentOptions{Store: httpmw.StoreAll})
	alone := httpmw.Exclusive(locks, func(*http.Request) (guard.Key, error) { return guard.Key{Class: "account", ID: "42"}, nil },
		httpmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	h := once(alone(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })))
	release := locktest.Hold(t, locks, "account:42")
	if w := post(h, "amount=1"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), httpmw.TypeBusy) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	release()
	if w := post(h, "amount=1"); w.Code != http.StatusCreated || replayed(w) {
		t.Errorf("%d, replayed %v", w.Code, replayed(w))
	}
	locktest.Hold(t, locks, "account:42")
	if w := post(h, "amount=1"); w.Code != http.StatusCreated || !replayed(w) {
		t.Errorf("%d, replayed %v", w.Code, replayed(w))
	}
}
