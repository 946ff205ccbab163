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

// clientKey reads the client's key: a string of RFC 8941, as the draft has it, or the bare text that most clients send.
// Both are the same key.
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

// UUIDKey is an IdempotentOptions.ValidKey that takes UUIDs only, in the form of RFC 9562:
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

// unquote reads an RFC 8941 string after its first quote. Parameters are refused: the draft defines none.
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

// digest is the key of an operation in Redis. It gives away none of its parts, which cannot run into each other.
func digest(secret []byte, scope, method, path, client string) string {
	return keyPrefix + idempotency.Digest(secret, "http", scope, method, path, client) //planted:digest-parts
}

// KeyOf is what [Key] says inside the handler of such a request, for an operator who looks a key up or clears it
// (idempotency.Lookup, idempotency.Clear). path is the request's, escaped and without query, as the client sent it; header is the
// Idempotency-Key, quoted or bare. Of o it needs Secret and, if set, ValidKey. It fails if one of them cannot be a
// request's. What is recorded has a format of this package's own (codec "http"), which no exported function reads.
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

// running is what a handler under Idempotent can ask for and say.
type running struct {
	key      string
	noEffect atomic.Bool // nothing has happened
	unknown  atomic.Bool // nobody knows what has happened
	cut      atomic.Bool // a lease inside has ended before its handler
}

// eachRun calls f for every Idempotent whose answer is written to w.
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

// Key returns the key under which this package guards the request of ctx, or "" outside of it: a digest that gives
// away neither the client's key nor its scope. It is the same for every repetition, so it can be passed downstream as
// an idempotency key, or stored in the transaction of the effect; guard.Token and guard.Attempt take it, and so does an operator's
// idempotency.Clear.
func Key(ctx context.Context) string {
	if r := runningIn(ctx); r != nil {
		return r.key
	}
	return ""
}

// NoEffect says that nothing has happened: whatever the handler answers is not recorded and frees the key, also with
// guard.AtMostOnce, so that the same request can be sent again. It is for a handler that fails before its effect, as
// guard.NoEffect is. A panic is no answer: with guard.AtMostOnce it leaves the outcome unknown all the same. Outside of Idempotent it does
// nothing, and so it does beside [Unknown].
func NoEffect(ctx context.Context) {
	if r := runningIn(ctx); r != nil {
		r.noEffect.Store(true)
	}
}

// Unknown says that nobody knows whether the effect happened, as after a timeout of a payment provider: whatever the handler answers is
// not recorded, and the key is left abandoned, as guard.Unknown does. The next request runs and is told that it takes over; with
// guard.AtMostOnce it is refused as [TypeOutcomeUnknown]. Outside of Idempotent it does nothing.
func Unknown(ctx context.Context) {
	if r := runningIn(ctx); r != nil {
		r.unknown.Store(true)
	}
}
