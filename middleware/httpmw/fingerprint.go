package httpmw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
)

// target returns path and query as the client sent them. URL.Path may be cut by http.StripPrefix: then /charge/7 and
// /refund/7 would meet.
func target(r *http.Request) (path, query string) {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // not from a server
		u = r.URL
	}
	return u.EscapedPath(), u.RawQuery
}

// fingerprint is the default of Options.Fingerprint.
func fingerprint(r *http.Request, body []byte) []byte {
	path, query := target(r)
	return idempotency.Fingerprint(
		[]byte(r.Method), []byte(path), []byte(sorted(query)), []byte(r.Header.Get("Content-Type")), body)
}

// sorted puts the parameters of a query in order. Those of one name stay as they are, for there order may matter, and
// nothing is decoded: what a parser would drop must still tell two requests apart.
func sorted(query string) string {
	params := strings.Split(query, "&")
	slices.SortStableFunc(params, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return strings.Join(params, "&")
}

// readBody reads the body of r, up to limit bytes.
func readBody(r *http.Request, limit int) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > int64(limit) {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	if len(body) > limit || errors.As(err, new(*http.MaxBytesError)) {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return body, nil
}

// giveBody hands body to the handler as if it had not been read.
func giveBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
