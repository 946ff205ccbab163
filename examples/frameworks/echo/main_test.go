package main

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestContract(t *testing.T) { contract.Run(t, contract.Served(routes)) }

// A compressor outside of Idempotent compresses first responses and replays.
func TestContractCompressed(t *testing.T) {
	contract.Run(t, contract.Served(func(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
		e := routes(locks, b, o).(*echo.Echo) //nolint:errcheck,forcetypeassert // a panic names the type
		e.Pre(middleware.Gzip())
		return e
	}))
}

// Idempotent around the whole server needs no adapter.
func TestAroundTheServer(t *testing.T) {
	contract.Run(t, contract.Served(func(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
		e := echo.New()
		e.Use(audit(b), middleware.Recover())
		alone := adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{}))
		e.POST("/accounts/:id/payments", pay(b), alone)
		e.POST("/accounts/:id/statements", statement)
		return httpmw.Idempotent(locks, bank.Merchant, o)(e)
	}))
}

// open starts a server with the routes of route.
func open(t *testing.T, route func(e *echo.Echo, once func(http.Handler) http.Handler)) *contract.Program {
	t.Helper()
	return contract.Open(t, contract.Served(func(locks *lockcore.Locker, _ *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
		e := echo.New()
		route(e, httpmw.Idempotent(locks, bank.Merchant, o))
		return e
	}), httpmw.IdempotentOptions{}, nil)
}

func declined(*echo.Context) error { return echo.NewHTTPError(http.StatusPaymentRequired, "declined") }

// With echo.WrapMiddleware the error of a handler is answered after Idempotent has recorded an
// empty 200. Idempotent reports that.
func TestWrapMiddleware(t *testing.T) {
	p := open(t, func(e *echo.Echo, once func(http.Handler) http.Handler) {
		e.POST("/wrapped", declined, echo.WrapMiddleware(once))
		e.POST("/adapted", declined, adapt(once))
	})
	if a := p.Post("/wrapped", "k", ""); a.Status != 200 || a.Body != "" {
		t.Errorf("got %+v: this version of echo needs no adapter", a)
	}
	if n := len(locktest.EventsOf[event.Misconfigured](p.Events)); n != 1 {
		t.Errorf("reported %d times", n)
	}
	p.WantReplay(p.Post("/adapted", "k", ""), p.Post("/adapted", "k", ""), 402)
}

// An event stream reaches the client while the handler runs. So it is not recorded, and its repeat
// is refused.
func TestEvents(t *testing.T) {
	p := open(t, func(e *echo.Echo, once func(http.Handler) http.Handler) {
		e.POST("/x", func(c *echo.Context) error {
			c.Response().Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(c.Response(), "data: 7\n\n")
			return http.NewResponseController(c.Response()).Flush()
		}, adapt(once))
	})
	if a := p.Post("/x", "k", ""); a.Status != 200 || a.Body != "data: 7\n\n" {
		t.Errorf("got %+v", a)
	}
	if a := p.Post("/x", "k", ""); a.Status != 409 || a.Replayed {
		t.Errorf("the repeat got %+v", a)
	}
}

// Hijack passes under Exclusive.
func TestHijackAlone(t *testing.T) {
	p := contract.Open(t, contract.Served(func(locks *lockcore.Locker, _ *bank.Bank, _ httpmw.IdempotentOptions) http.Handler {
		e := echo.New()
		e.POST("/alone/:id", func(c *echo.Context) error {
			conn, rw, err := http.NewResponseController(c.Response()).Hijack()
			if err != nil {
				return err
			}
			_, _ = rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = rw.Flush()
			return conn.Close()
		}, adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{})))
		return e
	}), httpmw.IdempotentOptions{}, nil)
	if a := p.Post("/alone/7", "k", ""); a.Status != 204 {
		t.Errorf("got %+v", a)
	}
}

// Hijack fails under Idempotent, and the error is answered.
func TestHijack(t *testing.T) {
	p := open(t, func(e *echo.Echo, once func(http.Handler) http.Handler) {
		e.POST("/x", func(c *echo.Context) error {
			_, _, err := http.NewResponseController(c.Response()).Hijack()
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("got %v", err)
			}
			return err
		}, adapt(once))
	})
	for range 2 {
		if a := p.Post("/x", "k", ""); a.Status != 500 || a.Replayed {
			t.Errorf("got %+v", a)
		}
	}
}

// echo's Recover behind Idempotent answers a panic as an error of the handler: with 500, which is
// not recorded.
func TestRecoverBehind(t *testing.T) {
	p := open(t, func(e *echo.Echo, once func(http.Handler) http.Handler) {
		e.POST("/x", func(*echo.Context) error { panic("a mistake") }, adapt(once), middleware.Recover())
	})
	for range 2 {
		if a := p.Post("/x", "k", ""); a.Status != 500 || a.Replayed {
			t.Errorf("got %+v", a)
		}
	}
}
