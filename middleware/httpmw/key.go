package httpmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// HeaderKey is the request header that names an operation, unless IdempotentOptions.Header names
// another one. HeaderReplayed is the response header that marks a replay.
const (
	HeaderKey      = "Idempotency-Key"
	HeaderReplayed = "Idempotent-Replayed"
)

const (
	maxKey    = 255
	keyPrefix = "http:" // of the keys in Redis
)

// clientKey returns the client's key. The header is a string of RFC 8941, as in the draft, or the
// bare text that most clients send. Both are the same key.
func (o IdempotentOptions) clientKey(h http.Header) (string, error) {
	values := h.Values(o.Header)
	switch len(values) {
	case 0:
		return "", errKeyMissing
	case 1:
	default:
		return "", errKeyMalformed
	}
	return o.parseKey(values[0])
}

func (o IdempotentOptions) parseKey(value string) (string, error) {
	key := value
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key[1:]); !ok {
			return "", errKeyMalformed
		}
	} else if strings.Contains(key, ",") { // a proxy may have joined two headers, as RFC 9110 allows
		return "", errKeyMalformed
	}
	if key == "" || len(key) > maxKey {
		return "", errKeyMalformed
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", errKeyMalformed
		}
	}
	if o.ValidKey != nil {
		if err := o.ValidKey(key); err != nil {
			return "", errtext.Wrap(errKeyMalformed, err)
		}
	}
	return key, nil
}

// UUIDKey is an IdempotentOptions.ValidKey that accepts only UUIDs in the form of RFC 9562:
// 8e03978e-40d5-43dd-bc93-6894a57f9324. Upper case is allowed, and is another key than lower case.
func UUIDKey(key string) error {
	if len(key) != 36 {
		return errNoUUID
	}
	for i := range len(key) {
		c := key[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return errNoUUID
			}
		default:
			if hex := c|0x20 >= 'a' && c|0x20 <= 'f'; !hex && (c < '0' || c > '9') {
				return errNoUUID
			}
		}
	}
	return nil
}

var errNoUUID = errors.New("it is not a UUID")

// unquote decodes an RFC 8941 string after its first quote. Parameters are an error, because the
// draft defines none.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}

// digest returns the key of an operation in Redis. It does not reveal its parts. Different parts
// have different digests, because Digest prefixes each part with its length.
func digest(secret []byte, scope, method, path, client string) string {
	return keyPrefix + idempotency.Digest(secret, "http", scope, method, path, client) //planted:digest-parts
}

// KeyOf returns what [Key] returns inside the handler of a request. An operator needs it for
// idempotency.Lookup and idempotency.Clear.
//
//   - path is the path of the request, escaped and without query, as the client sent it.
//   - header is the value of the Idempotency-Key header, quoted or bare.
//   - o needs the Secret of the middleware and, if it has one, its ValidKey.
//
// KeyOf returns an error that lists every argument that no guarded request can have.
// [DecodeResponse] decodes the records of this package.
func (o IdempotentOptions) KeyOf(scope, method, path, header string) (string, error) {
	var errs []error
	if scope == "" {
		errs = append(errs, errNoScope)
	}
	if !isMethod(method) {
		errs = append(errs, fmt.Errorf("httpmw: method is %q, must be in upper case", method))
	}
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "?") {
		errs = append(errs, fmt.Errorf("httpmw: path is %q, must begin with / and have no query", path))
	}
	client, err := o.parseKey(header)
	if errs = append(errs, err); errtext.Join(errs...) != nil {
		return "", errtext.Join(errs...)
	}
	return digest(o.Secret, scope, method, path, client), nil
}

// running is the run of a handler under Idempotent.
type running struct {
	key      string
	noEffect atomic.Bool // the handler called NoEffect, or a middleware inside answered with a problem
	unknown  atomic.Bool // the handler called Unknown, or was interrupted under a middleware inside
	cut      atomic.Bool // the lease of a middleware inside has ended before its handler
}

// eachRun calls f for every Idempotent that records what is written to w.
func eachRun(w http.ResponseWriter, f func(*running)) {
	for {
		switch v := w.(type) {
		case *recorder:
			f(v.run)
			w = v.w
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return
		}
	}
}

type runningKey struct{}

func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// Key returns the key under which [Idempotent] guards the request of ctx, or "" outside of it. The
// key is a digest that reveals neither the client's key nor its scope. It is the same for every
// repetition. So you can pass it downstream as an idempotency key, or store it in the transaction
// of the effect. It is also the key for guard.Token, guard.Attempt, guard.Ticket and
// idempotency.Clear.
func Key(ctx context.Context) string {
	if r := runningIn(ctx); r != nil {
		return r.key
	}
	return ""
}

// NoEffect reports that the request had no effect. The handler's response is not recorded, and the
// key is released, even with guard.AtMostOnce. So the client can send the same request again. After
// a takeover the key is abandoned again. NoEffect is for a handler that fails before its effect,
// like guard.NoEffect. If the handler panics, NoEffect does nothing: with guard.AtMostOnce the key
// is abandoned. It also does nothing outside of Idempotent, and if the handler calls [Unknown] too.
func NoEffect(ctx context.Context) {
	if r := runningIn(ctx); r != nil {
		r.noEffect.Store(true)
	}
}

// Unknown reports that the effect of the request is unknown, for example after a timeout of a
// payment provider. The handler's response is not recorded, and the key is abandoned, like with
// guard.Unknown. The next request takes the key over, see guard.Attempt. With guard.AtMostOnce it
// gets [TypeOutcomeUnknown]. Outside of Idempotent Unknown does nothing.
func Unknown(ctx context.Context) {
	if r := runningIn(ctx); r != nil {
		r.unknown.Store(true)
	}
}
