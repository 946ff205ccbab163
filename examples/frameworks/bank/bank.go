// Package bank has what the programs of this module share: accounts that are charged, and the
// server. It knows no framework.
package bank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The reasons for which Charge makes no payment.
var (
	ErrAmount   = errors.New("the amount must be positive")
	ErrDeclined = errors.New("declined")
)

// Status returns the status of the response to a payment that failed with err.
func Status(err error) int {
	switch {
	case errors.Is(err, ErrAmount):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrDeclined):
		return http.StatusPaymentRequired
	default:
		return http.StatusInternalServerError
	}
}

// Payment is the body of a request, and the response to it.
type Payment struct {
	ID     int `json:"id"`
	Amount int `json:"amount"`
}

// Bank charges accounts.
type Bank struct {
	// Provider charges a card. Default: it takes a tenth of a second, and declines above 1,000.
	Provider func(ctx context.Context, account string, amount int) error

	mu     sync.Mutex
	paid   int
	audits []error
}

// Charge charges account.
func (b *Bank) Charge(ctx context.Context, account string, amount int) (Payment, error) {
	if amount <= 0 {
		return Payment{}, ErrAmount
	}
	provider := b.Provider
	if provider == nil {
		provider = charge
	}
	if err := provider(ctx, account, amount); err != nil {
		return Payment{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid++
	return Payment{ID: b.paid, Amount: amount}, nil
}

func charge(ctx context.Context, _ string, amount int) error {
	if amount > 1000 {
		return ErrDeclined
	}
	return stage.Sleep(ctx, 100*time.Millisecond)
}

// Audit writes a line about a request after its response. It needs a ctx that has not ended.
func (b *Bank) Audit(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.audits = append(b.audits, ctx.Err())
}

// Audits returns the error of each Audit.
func (b *Bank) Audits() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]error(nil), b.audits...)
}

// Merchant is the Scope of the keys: the caller. A real program takes it from verified credentials.
func Merchant(r *http.Request) (string, error) {
	name := r.Header.Get("Authorization")
	if name == "" {
		return "", errors.New("not signed in")
	}
	return name, nil
}

// Main serves routes until the program is interrupted.
func Main(routes func(*lockcore.Locker, *Bank, httpmw.IdempotentOptions) http.Handler) {
	Run(func(ctx context.Context, locks *lockcore.Locker, addr string) error {
		return stage.Serve(ctx, addr, routes(locks, &Bank{}, httpmw.IdempotentOptions{}), func(string) {})
	})
}

// Run runs serve until the program is interrupted. serve answers on addr until ctx ends.
func Run(serve func(ctx context.Context, locks *lockcore.Locker, addr string) error) {
	const addr = "localhost:8080"
	stage.Program{Name: "bank", Memory: true, Play: func(ctx context.Context, s *stage.Stage) error {
		node, err := s.Node(lockcore.Options{})
		if err != nil {
			return err
		}
		fmt.Fprintf(s.Out, "curl -i -H 'Authorization: acme' -H 'Content-Type: application/json' -H 'Idempotency-Key: 7' -d '{\"amount\": 5}' http://%s/accounts/42/payments\n", addr)
		return serve(ctx, node.Locks, addr)
	}}.Main()
}
