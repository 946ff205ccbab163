package main

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/examples/frameworks/bank"
	"github.com/holdfast-go/holdfast/examples/frameworks/internal/contract"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

func TestContract(t *testing.T) { contract.Run(t, contract.Served(routes)) }

// Idempotent around the engine needs no adapter.
func TestAroundTheEngine(t *testing.T) {
	contract.Run(t, contract.Served(func(locks *lockcore.Locker, b *bank.Bank, o httpmw.IdempotentOptions) http.Handler {
		r := gin.New()
		r.Use(audit(b), gin.Recovery())
		alone := adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{}))
		r.POST("/accounts/:id/payments", alone, pay(b))
		r.POST("/accounts/:id/statements", statement)
		return httpmw.Idempotent(locks, bank.Merchant, o)(r)
	}))
}

// open starts an engine with a route /x.
func open(t *testing.T, route func(r *gin.Engine, locks *lockcore.Locker)) *contract.Program {
	t.Helper()
	return contract.Open(t, contract.Served(func(locks *lockcore.Locker, _ *bank.Bank, _ httpmw.IdempotentOptions) http.Handler {
		r := gin.New()
		route(r, locks)
		return r
	}), httpmw.IdempotentOptions{}, nil)
}

func once(locks *lockcore.Locker) func(http.Handler) http.Handler {
	return httpmw.Idempotent(locks, bank.Merchant, httpmw.IdempotentOptions{})
}

// render answers with the last error of the handlers behind it.
func render(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.String(http.StatusUnprocessableEntity, c.Errors.Last().Error())
	}
}

// A middleware that renders the errors of the handler works behind Idempotent. In front of it, it
// is too late: the response is not recorded, and the request runs again.
func TestRenderedErrors(t *testing.T) {
	fail := func(c *gin.Context) { _ = c.Error(errors.New("no such account")) }
	p := open(t, func(r *gin.Engine, locks *lockcore.Locker) {
		r.POST("/behind", adapt(once(locks)), render, fail)
		r.POST("/front", render, adapt(once(locks)), fail)
	})
	first := p.Post("/behind", "k", "")
	p.WantReplay(first, p.Post("/behind", "k", ""), 422)
	for range 2 {
		if a := p.Post("/front", "k", ""); a.Status != 422 || a.Replayed {
			t.Errorf("got %+v", a)
		}
	}
}

// An event stream reaches the client while the handler runs. So it is not recorded, and its repeat
// is refused.
func TestEvents(t *testing.T) {
	p := open(t, func(r *gin.Engine, locks *lockcore.Locker) {
		r.POST("/x", adapt(once(locks)), func(c *gin.Context) {
			c.Stream(func(io.Writer) bool {
				c.SSEvent("paid", 7)
				return false
			})
		})
	})
	if a := p.Post("/x", "k", ""); a.Status != 200 || a.Body != "event:paid\ndata:7\n\n" {
		t.Errorf("got %+v", a)
	}
	if a := p.Post("/x", "k", ""); a.Status != 409 || a.Replayed {
		t.Errorf("the repeat got %+v", a)
	}
}

// Hijack fails under Idempotent, and passes under Exclusive.
func TestHijack(t *testing.T) {
	hijack := func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		if !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("under Idempotent: %v", err)
			_ = conn.Close()
		}
		c.String(http.StatusNotImplemented, "no")
	}
	p := open(t, func(r *gin.Engine, locks *lockcore.Locker) {
		r.POST("/once", adapt(once(locks)), hijack)
		r.POST("/alone/:id", adapt(httpmw.Exclusive(locks, httpmw.ByPathValue("account", "id"), httpmw.ExclusiveOptions{})), func(c *gin.Context) {
			conn, rw, err := c.Writer.Hijack()
			if err != nil {
				t.Errorf("under Exclusive: %v", err)
				return
			}
			_, _ = rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = rw.Flush()
			_ = conn.Close()
		})
	})
	for range 2 {
		if a := p.Post("/once", "k", ""); a.Status != 501 || a.Replayed {
			t.Errorf("got %+v", a)
		}
	}
	if a := p.Post("/alone/7", "k", ""); a.Status != 204 {
		t.Errorf("got %+v", a)
	}
}

// A middleware that ignores the writer of Idempotent sends its response. Idempotent reports that,
// and refuses the repeat.
func TestWithoutAdapter(t *testing.T) {
	var runs atomic.Int64
	p := open(t, func(r *gin.Engine, locks *lockcore.Locker) {
		r.POST("/x", func(c *gin.Context) {
			once(locks)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.Request = r
				c.Next()
			})).ServeHTTP(c.Writer, c.Request)
			c.Abort()
		}, func(c *gin.Context) {
			runs.Add(1)
			c.String(http.StatusPaymentRequired, "declined")
		})
	})
	if a := p.Post("/x", "k", ""); a.Status != 402 || a.Body != "declined" {
		t.Errorf("got %+v", a)
	}
	if a := p.Post("/x", "k", ""); a.Status != 409 || a.Replayed || runs.Load() != 1 {
		t.Errorf("the repeat got %+v after %d runs", a, runs.Load())
	}
	if n := len(locktest.EventsOf[event.Misconfigured](p.Events)); n != 1 {
		t.Errorf("reported %d times", n)
	}
}

// A status that no handler sets, such as the 404 of an unknown path, is recorded as it is.
func TestUnknownPath(t *testing.T) {
	p := open(t, func(r *gin.Engine, locks *lockcore.Locker) { r.Use(adapt(once(locks))) })
	first, second := p.Post("/unknown", "k", ""), p.Post("/unknown", "k", "")
	if first.Status != 404 || second.Status != 404 || !second.Replayed {
		t.Errorf("got %+v, then %+v", first, second)
	}
}
