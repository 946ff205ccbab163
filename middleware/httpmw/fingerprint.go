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

// target returns path and query as the client sent them. It does not use URL.Path, which
// http.StripPrefix shortens: then /charge/7 and /refund/7 could have the same key.
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

// fingerprint returns the digest that must be equal when a key is used again.
func (m *idempotent) fingerprint(r *http.Request, path, query string, body []byte) []byte {
	if m.Fingerprint != nil {
		return idempotency.Fingerprint(m.Secret, m.Fingerprint(r, body))
	}
	contentType := []byte(r.Header.Get("Content-Type"))
	if c, ok := cutMultipart(contentType, body, 0); ok {
		return idempotency.Fingerprint(m.Secret,
			[]byte(r.Method), []byte(path), []byte(sorted(query)), c.before, c.after, c.digest)
	}
	return idempotency.Fingerprint(m.Secret,
		[]byte(r.Method), []byte(path), []byte(sorted(query)), contentType,
		body) //planted:fingerprint-has-body
}

// sorted returns query with its parameters sorted by their decoded names. Parameters with the same
// name keep their order, because it may matter. The parameters are not decoded: two requests that
// differ only in something that a parser drops must have different fingerprints.
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

// trusted bounds the memory that readBody allocates because of a Content-Length alone.
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
		size = min(r.ContentLength, trusted) + 1 // the Read that returns io.EOF needs a free byte
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
	case err == io.EOF: // not errors.Is: a wrapped io.EOF is an error of the connection, as in io.ReadAll
		if len(body) == 0 && r.ContentLength > 0 {
			return nil, errBodyGone
		}
		return body, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, errTooLarge
	}
	return nil, errtext.Wrap(errBody, err)
}

// giveBody makes body the body of r, as if it had not been read.
func giveBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
