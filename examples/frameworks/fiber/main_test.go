package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestContract(t *testing.T) { contract.Run(t, start) }

func start(t *testing.T, locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) string {
	return listen(t, routes(locks, b, o))
}

// listen serves app until the test ends.
func listen(t *testing.T, app *fiber.App) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }() // ends with Shutdown
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // Shutdown waits for them
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// With adaptor.HTTPMiddleware the handler runs after the middleware. So Exclusive guards nothing,
// and Idempotent records an empty 200. Neither can detect that.
func TestHTTPMiddleware(t *testing.T) {
	p := contract.Open(t, func(t *testing.T, locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) string {
		app := fiber.New()
		app.Post("/accounts/:id/payments", adaptor.HTTPMiddleware(httpmw.Idempotent(locks, bank.Merchant, o)), pay(b))
		return listen(t, app)
	}, httpmw.IdempotentOptions{}, func(context.Context, string, int) error { return nil })
	if a := p.Post("/accounts/42/payments", "k", `{"amount":5}`); a.Status != 201 || p.Runs.Load() != 1 {
		t.Errorf("got %+v after %d runs", a, p.Runs.Load())
	}
	if a := p.Post("/accounts/42/payments", "k", `{"amount":5}`); a.Status != 200 || !a.Replayed || a.Body != "" {
		t.Errorf("the repeat got %+v: this version of fiber needs no adapter", a)
	}
}

// The headers of a middleware in front, and each of several cookies, reach the client once.
func TestHeaders(t *testing.T) {
	p := contract.Open(t, func(t *testing.T, locks *lockcore.Locker, _ *bank.Bank, o httpmw.IdempotentOptions) string {
		app := fiber.New()
		app.Post("/x", func(c fiber.Ctx) error {
			c.Set("X-Front", "1")
			return c.Next()
		}, adapt(httpmw.Idempotent(locks, bank.Merchant, o)), func(c fiber.Ctx) error {
			c.Cookie(&fiber.Cookie{Name: "a", Value: "1"})
			c.Cookie(&fiber.Cookie{Name: "b", Value: "2"})
			c.Set("Location", "/7")
			return c.SendStatus(http.StatusNoContent)
		})
		return listen(t, app)
	}, httpmw.IdempotentOptions{}, nil)
	for i := range 2 {
		res, err := http.DefaultClient.Do(p.Request("/x", "k", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		cookies := len(res.Header["Set-Cookie"])
		if res.StatusCode != 204 || len(res.Header["X-Front"]) != 1 || len(res.Header["Location"]) != 1 || cookies != []int{2, 0}[i] {
			t.Errorf("%d: got %d with %v", i, res.StatusCode, res.Header)
		}
	}
}
