// Package bank has what the programs of this module share: accounts that are charged, and the
// server that answers until it is interrupted. It knows no framework.
package bank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// The reasons for which Charge refuses a payment.
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
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// Main runs serve until the program is interrupted.
func Main(serve func(ctx context.Context, locks *lockcore.Locker, addr string) error) {
	const addr = "localhost:8080"
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks, err := lockcore.NewMemory(lockcore.Options{}) // several processes: lockcore.New
	if err != nil {
		panic(err)
	}
	fmt.Printf("curl -i -H 'Authorization: acme' -H 'Content-Type: application/json' -H 'Idempotency-Key: 7' -d '{\"amount\": 5}' http://%s/accounts/42/payments\n", addr)
	err = serve(ctx, locks, addr)
	err = errors.Join(err, locks.Close(context.WithoutCancel(ctx)))
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Serve answers on addr until ctx ends.
func Serve(ctx context.Context, addr string, handler http.Handler) error {
	srv := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- srv.Shutdown(context.WithoutCancel(ctx)) })
	err := srv.ListenAndServe()
	if stop() { // it could not listen
		return err
	}
	return <-stopped
}
