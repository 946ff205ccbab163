// Command echo serves payments with echo. adapter.go makes echo middlewares of the middlewares of
// httpmw.
package main

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() { bank.Main(routes) }

func routes(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
	once := adapt(httpmw.Idempotent(locks, bank.Merchant, o))
	alone := adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{}))
	e := echo.New()
	e.Use(audit(b), middleware.Recover())
	e.POST("/accounts/:id/payments", pay(b), once, alone)
	e.POST("/accounts/:id/statements", statement, once)
	return e
}

func pay(b *bank.Bank) echo.HandlerFunc {
	return func(c *echo.Context) error {
		var p bank.Payment
		if err := c.Bind(&p); err != nil {
			return err
		}
		p, err := b.Charge(c.Request().Context(), c.Param("id"), p.Amount)
		if err != nil {
			return echo.NewHTTPError(bank.Status(err), err.Error())
		}
		return c.JSON(http.StatusCreated, p)
	}
}

// statement writes one line at a time.
func statement(c *echo.Context) error {
	c.Response().Header().Set("Content-Type", "text/csv")
	for line := range 3 {
		if _, err := fmt.Fprintln(c.Response(), line); err != nil {
			return err
		}
		if err := http.NewResponseController(c.Response()).Flush(); err != nil {
			return err
		}
	}
	return nil
}

// audit uses the ctx of the request after the response.
func audit(b *bank.Bank) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			b.Audit(c.Request().Context())
			return err
		}
	}
}
