package main

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// adapt makes a gin middleware of a middleware of httpmw. The handlers behind it answer to the
// writer of that middleware, and gin's status is written before it records the response.
func adapt(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, request, ran := c.Writer, c.Request, false
		for _, p := range c.Params {
			request.SetPathValue(p.Key, p.Value) // for httpmw.ByPathValue
		}
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			defer func() { c.Writer, c.Request = outer, request }() // r's ctx ends with the hold
			c.Request = r
			if w == http.ResponseWriter(outer) { // Exclusive passes the writer on
				c.Next()
				return
			}
			c.Writer = &writer{ResponseWriter: w, status: outer.Status(), size: -1}
			errs := len(c.Errors)
			c.Next()
			if len(c.Errors) > errs && !c.Writer.Written() {
				c.Status(http.StatusInternalServerError) // a middleware in front that renders c.Errors is too late
			}
			c.Writer.WriteHeaderNow()
		})).ServeHTTP(outer, request)
		if !ran {
			c.Abort()
		}
	}
}

// writer is gin's ResponseWriter on top of that of a middleware. As in gin, the status is written
// with the first byte of the body.
type writer struct {
	http.ResponseWriter
	status, size int // size is -1 until the status is written
}

func (w *writer) Status() int                       { return w.status }
func (w *writer) Size() int                         { return w.size }
func (w *writer) Written() bool                     { return w.size >= 0 }
func (w *writer) Unwrap() http.ResponseWriter       { return w.ResponseWriter }
func (w *writer) Pusher() http.Pusher               { return nil }
func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	w.size += n
	return n, err
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack fails under Idempotent.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// CloseNotify is for Context.Stream. Under Idempotent the channel gets a value when the ctx of the
// request ends.
func (w *writer) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}
