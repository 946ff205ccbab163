package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestContract(t *testing.T) { contract.Run(t, start) }

func start(t *testing.T, locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) string {
	t.Helper()
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
// and Idempotent records an empty 200. Neither can detect that. The requests come by App.Test,
// because the adaptor's ctx has a data race with the shutdown of a server of fasthttp 1.69.
func TestHTTPMiddleware(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alone := httpmw.Exclusive(locks, func(*http.Request) (guard.Key, error) { return guard.Key{Class: "account", ID: "7"}, nil }, httpmw.ExclusiveOptions{})
	var runs, unguarded int
	app := fiber.New()
	app.Post("/x", adaptor.HTTPMiddleware(httpmw.Idempotent(locks, bank.Merchant, httpmw.IdempotentOptions{})), adaptor.HTTPMiddleware(alone), func(c fiber.Ctx) error {
		runs++
		if info, err := locks.Inspect(c.Context(), event.KindExclusive, "account:7"); err != nil || info.State == lockcore.StateFree {
			unguarded++
		}
		return c.Status(http.StatusCreated).SendString("made")
	})
	post := func() contract.Answer {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", nil)
		r.Header.Set("Authorization", "acme")
		r.Header.Set("Idempotency-Key", "k")
		res, err := app.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		a, err := contract.Read(res)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := post(); a.Status != 201 || runs != 1 || unguarded != 1 {
		t.Errorf("got %+v after %d runs, %d of them without the key: this version of fiber needs no adapter", a, runs, unguarded)
	}
	if a := post(); a.Status != 200 || !a.Replayed || a.Body != "" {
		t.Errorf("the repeat got %+v: this version of fiber needs no adapter", a)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
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
