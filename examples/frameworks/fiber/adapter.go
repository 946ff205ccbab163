package main

import (
	"bytes"
	"maps"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

// adapt makes a fiber middleware of a middleware of httpmw. The handlers behind it run inside of
// that middleware. adaptor.HTTPMiddleware would run them after it. The response is sent when it is
// complete: fiber's streams are collected first.
func adapt(middleware func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		request, err := adaptor.ConvertRequest(c, true)
		if err != nil {
			return err
		}
		request.Header = http.Header{} // ConvertRequest keeps one of two equal headers
		for name, value := range c.Request().Header.All() {
			request.Header.Add(string(name), string(value))
		}
		for _, name := range c.Route().Params {
			request.SetPathValue(name, strings.Clone(c.Params(name))) // for httpmw.ByPathValue
		}
		outer := &writer{c: c, header: headerOf(c)}
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := c.Context()
			defer c.SetContext(ctx) // r's ctx ends with the hold
			c.SetContext(r.Context())
			if err := c.Next(); err != nil {
				if err = c.App().ErrorHandler(c, err); err != nil {
					c.Response().Reset()
					c.Status(http.StatusInternalServerError)
				}
			}
			header, status, body := headerOf(c), c.Response().StatusCode(), bytes.Clone(c.Response().Body())
			clear(w.Header())
			maps.Copy(w.Header(), header)
			w.WriteHeader(status)
			_, _ = w.Write(body)
		})).ServeHTTP(outer, request.WithContext(c.Context()))
		return nil
	}
}

// headerOf returns the headers of c's response except Content-Length, which fiber computes.
func headerOf(c fiber.Ctx) http.Header {
	h := http.Header{}
	for name, value := range c.Response().Header.All() {
		h.Add(string(name), string(value))
	}
	h.Del("Content-Length")
	return h
}

// writer writes to c's response.
type writer struct {
	c      fiber.Ctx
	header http.Header
	wrote  bool
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.wrote || status < 200 { // fiber sends no 1xx
		return
	}
	w.wrote = true
	response := w.c.Response()
	response.Reset()
	response.SetStatusCode(status)
	for name, values := range w.header {
		for _, value := range values {
			response.Header.Add(name, value)
		}
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.c.Response().AppendBody(p)
	return len(p), nil
}
