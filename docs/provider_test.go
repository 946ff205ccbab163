package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

type shop struct{ provider provider }

func (s shop) pay(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	key := httpmw.Key(ctx) // the same in every run of this operation, also in a takeover after a crash
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 {
		http.Error(w, "an order needs an amount", http.StatusUnprocessableEntity) // recorded
		return
	}
	if attempt, _ := guard.Attempt(ctx, key); attempt > 1 { // an earlier run began, and no answer of it was recorded
		switch paid, err := s.provider.find(ctx, key); {
		case err != nil:
			later(w)
			return
		case paid != nil && paid.Amount != o.Amount: // a free key accepts another body
			httpmw.NoEffect(ctx) // not recorded, so that the right body still gets its receipt
			http.Error(w, "this key belongs to another payment", http.StatusUnprocessableEntity)
			return
		case paid != nil:
			answer(w, *paid)
			return
		}
	}
	paid, err := s.provider.charge(ctx, key, o)
	switch {
	case errors.Is(err, errDeclined): // a final answer of the provider: recorded
		http.Error(w, "declined", http.StatusPaymentRequired)
	case err != nil: // a timeout or a 5xx: the outcome is unknown. The next run calls find first
		later(w)
	default:
		answer(w, paid)
	}
}

func later(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	http.Error(w, "send the same request again", http.StatusServiceUnavailable)
}

func answer(w http.ResponseWriter, p receipt) {
	w.Header().Set("Location", "/payments/"+p.ID)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(p)
}

type order struct {
	Amount int `json:"amount"`
}

type receipt struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

var errDeclined = errors.New("declined")

// provider is the client of a payment provider that supports idempotency keys.
type provider struct{ url string }

func (p provider) charge(ctx context.Context, key string, o order) (paid receipt, err error) {
	body, err := json.Marshal(o) // no time and no random number: requests with the same key have the same bytes
	if err != nil {
		return paid, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return paid, err
	}
	r.Header.Set("Idempotency-Key", key)
	return p.do(r)
}

// find returns nil if the provider has no charge with this key.
func (p provider) find(ctx context.Context, key string) (*receipt, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/charges?idempotency_key="+key, http.NoBody)
	if err != nil {
		return nil, err
	}
	paid, err := p.do(r)
	if err != nil || paid.ID == "" {
		return nil, err
	}
	return &paid, nil
}

func (p provider) do(r *http.Request) (paid receipt, err error) {
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return paid, err
	}
	defer func() { _ = a.Body.Close() }()
	switch a.StatusCode {
	case http.StatusOK:
		return paid, json.NewDecoder(a.Body).Decode(&paid)
	case http.StatusPaymentRequired:
		return paid, errDeclined
	}
	return paid, fmt.Errorf("the provider answered %s", a.Status)
}

// bank charges each key once. If cut is set, it breaks the connection of the first charge and sends
// no response.
type bank struct {
	mu      sync.Mutex
	cut     bool
	charges []string
	asked   int
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock() // a request may run beside one whose connection was broken
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		b.asked++
		key = r.FormValue("idempotency_key")
	} else if _, err := io.Copy(io.Discard, r.Body); err == nil && len(b.charges) == 0 {
		b.charges = append(b.charges, key)
		if b.cut {
			panic(http.ErrAbortHandler)
		}
	}
	if len(b.charges) == 1 && b.charges[0] == key {
		_, _ = io.WriteString(w, `{"id":"7","amount":1}`)
	}
}

// The provider's reply is lost, or the process ends between the charge and its record. In both
// cases a repetition finds the charge by its key, and there is one charge. A request for another
// amount does not get its receipt: after the crash the key is abandoned, and the request does not
// run.
func TestPayOnce(t *testing.T) {
	for name, dies := range map[string]bool{"lost reply": false, "crash": true} {
		wantRuns := 3
		if dies {
			wantRuns = 2
		}
		b := &bank{cut: !dies}
		srv := httptest.NewServer(b)
		defer srv.Close()
		s := shop{provider{srv.URL}}
		runs := 0
		h := chain(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			s.pay(w, r)
			if runs == 1 && dies {
				panic("between the effect and the record")
			}
		}))
		post(h, `{"amount":1}`)
		if w := post(h, `{"amount":1000}`); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: another amount: %d %s", name, w.Code, w.Body)
		}
		w := post(h, `{"amount":1}`)
		b.mu.Lock()
		if w.Code != http.StatusCreated || len(b.charges) != 1 || b.asked != wantRuns-1 || runs != wantRuns {
			t.Errorf("%s: %d %s after %d runs, charges %q, %d calls of find", name, w.Code, w.Body, runs, b.charges, b.asked)
		}
		b.mu.Unlock()
	}
}
