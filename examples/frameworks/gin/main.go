// Command gin serves payments with gin. adapter.go makes gin middlewares of the middlewares of
// httpmw.
package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	bank.Main(routes)
}

func routes(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
	once := adapt(httpmw.Idempotent(locks, bank.Merchant, o))
	alone := adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{}))
	r := gin.New()
	r.Use(audit(b), gin.Recovery())
	r.POST("/accounts/:id/payments", once, alone, pay(b))
	r.POST("/accounts/:id/statements", once, statement)
	return r
}

func pay(b *bank.Bank) gin.HandlerFunc {
	return func(c *gin.Context) {
		var p bank.Payment
		if err := c.ShouldBindJSON(&p); err != nil {
			c.String(http.StatusBadRequest, err.Error())
			return
		}
		p, err := b.Charge(c.Request.Context(), c.Param("id"), p.Amount)
		if err != nil {
			c.String(bank.Status(err), err.Error())
			return
		}
		c.JSON(http.StatusCreated, p)
	}
}

// statement writes one line at a time.
func statement(c *gin.Context) {
	c.Header("Content-Type", "text/csv")
	line := 0
	c.Stream(func(w io.Writer) bool {
		_, _ = fmt.Fprintln(w, line)
		line++
		return line < 3
	})
}

// audit uses the ctx of the request after the response.
func audit(b *bank.Bank) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		b.Audit(c.Request.Context())
	}
}
