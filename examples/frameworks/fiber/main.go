// Command fiber serves payments with fiber. adapter.go makes fiber middlewares of the middlewares
// of httpmw.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() {
	bank.Run(func(ctx context.Context, locks *lockcore.Locker, addr string) error {
		return routes(locks, &bank.Bank{}, httpmw.IdempotentOptions{}).Listen(addr, fiber.ListenConfig{GracefulContext: ctx})
	})
}

func routes(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) *fiber.App {
	once := adapt(httpmw.Idempotent(locks, bank.Merchant, o))
	alone := adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{}))
	app := fiber.New()
	app.Use(audit(b), recover.New())
	app.Post("/accounts/:id/payments", once, alone, pay(b))
	app.Post("/accounts/:id/statements", once, statement)
	return app
}

func pay(b *bank.Bank) fiber.Handler {
	return func(c fiber.Ctx) error {
		var p bank.Payment
		if err := c.Bind().JSON(&p); err != nil {
			return fiber.NewError(http.StatusBadRequest, err.Error())
		}
		p, err := b.Charge(c.Context(), c.Params("id"), p.Amount)
		if err != nil {
			return fiber.NewError(bank.Status(err), err.Error())
		}
		return c.Status(http.StatusCreated).JSON(p)
	}
}

// statement writes one line at a time.
func statement(c fiber.Ctx) error {
	c.Set("Content-Type", "text/csv")
	return c.SendStreamWriter(func(w *bufio.Writer) {
		for line := range 3 {
			_, _ = fmt.Fprintln(w, line)
			_ = w.Flush()
		}
	})
}

// audit uses the ctx of the request after the response.
func audit(b *bank.Bank) fiber.Handler {
	return func(c fiber.Ctx) error {
		err := c.Next()
		b.Audit(c.Context())
		return err
	}
}
