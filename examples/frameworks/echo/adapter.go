package main

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// adapt makes an echo middleware of a middleware of httpmw. It answers an error of the handler
// before that middleware records the response. echo.WrapMiddleware would answer it later.
func adapt(middleware func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			response, request := c.Response(), c.Request()
			for _, p := range c.PathValues() {
				request.SetPathValue(p.Name, p.Value) // for httpmw.ByPathValue
			}
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { c.SetResponse(response); c.SetRequest(request) }() // r's ctx ends with the hold
				c.SetResponse(echo.NewResponse(w, c.Logger()))
				c.SetRequest(r)
				if err := next(c); err != nil {
					c.Echo().HTTPErrorHandler(c, err)
				}
			})).ServeHTTP(response, request)
			return nil
		}
	}
}
