package httpmw

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// target returns path and query as the client sent them. URL.Path may be cut by http.StripPrefix: then /charge/7 and
// /refund/7 would meet.
func target(r *http.Request) (path, query string) {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, query, _ = strings.Cut(r.RequestURI, "?")
		return path, query
	}
	u, err := url.ParseRequestURI(r.RequestURI)
	switch {
	case err != nil: // not from a server
		u = r.URL
	case u.Opaque != "": // x:y, which has no path
		return u.Opaque, u.RawQuery
	}
	return u.EscapedPath(), u.RawQuery
}

// fingerprint is what must be equal when a key is used again.
func (m *idempotent) fingerprint(r *http.Request, path, query string, body []byte) []byte {
	if m.Fingerprint != nil {
		return idempotency.Fingerprint(m.Secret, m.Fingerprint(r, body))
	}
	return idempotency.Fingerprint(m.Secret,
		[]byte(r.Method), []byte(path), []byte(sorted(query)), []byte(r.Header.Get("Content-Type")),
		body) //planted:fingerprint-has-body
}

// sorted puts the parameters of a query in order, by their names as a parser reads them. Those of one name stay as they are, for there
// order may matter, and what stands there is not decoded: what a parser would drop must still tell two requests apart.
func sorted(query string) string {
	if !strings.Contains(query, "&") {
		return query
	}
	params := strings.Split(query, "&")
	slices.SortStableFunc(params, func(a, b string) int {
		return strings.Compare(nameIn(a), nameIn(b))
	})
	return strings.Join(params, "&")
}

func nameIn(param string) string {
	raw, _, _ := strings.Cut(param, "=")
	name, err := url.QueryUnescape(raw)
	if err != nil {
		return raw
	}
	return name
}

// trusted is how much memory a length that is only announced may take.
const trusted = 64 << 10

// readBody reads the body of r, up to limit bytes.
func readBody(r *http.Request, limit int) ([]byte, error) {
	if len(r.PostForm) > 0 || r.MultipartForm != nil {
		return nil, errBodyGone
	}
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > int64(limit) {
		return nil, errTooLarge
	}
	size := int64(bytes.MinRead)
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, trusted) + 1 // one byte more, so that the Read that finds the end needs no larger body
	}
	body := make([]byte, 0, size)
	var err error
	for err == nil && len(body) <= limit {
		if len(body) == cap(body) {
			body = slices.Grow(body, bytes.MinRead)
		}
		var n int
		n, err = r.Body.Read(body[len(body):min(cap(body), limit+1)])
		body = body[:len(body)+n]
	}
	switch {
	case len(body) > limit:
		return nil, errTooLarge
	case err == io.EOF: // compared as io.ReadAll does: a wrapped io.EOF is an error of the connection
		if len(body) == 0 && r.ContentLength > 0 {
			return nil, errBodyGone
		}
		return body, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, errTooLarge
	}
	return nil, errtext.Wrap(errBody, err)
}

// giveBody hands body to the handler as if it had not been read.
func giveBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
