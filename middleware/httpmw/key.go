package httpmw

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/idempotency"
)

// HeaderKey is the request header that names an operation, HeaderReplayed the one that marks an answer as a replay.
const (
	HeaderKey      = "Idempotency-Key"
	HeaderReplayed = "Idempotent-Replayed"
)

const maxKey = 255

// clientKey reads the client's key: a string of RFC 8941, as the draft has it, or the bare text that most clients send.
// Both are the same key.
func clientKey(h http.Header) (string, error) {
	values := h.Values(HeaderKey)
	switch len(values) {
	case 0:
		return "", errNoKey
	case 1:
	default:
		return "", errBadKey
	}
	return parseKey(values[0])
}

func parseKey(value string) (string, error) {
	key := value
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key[1:]); !ok {
			return "", errBadKey
		}
	}
	if key == "" || len(key) > maxKey {
		return "", errBadKey
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", errBadKey
		}
	}
	return key, nil
}

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
	return "http:" + idempotency.Digest(secret, "http", scope, method, path, client)
}

// KeyOf is what [Key] says inside the handler of such a request, for an operator who looks a key up or clears it
// (idempotency.Lookup, idempotency.Clear). path is the request's, escaped and without query, as the client sent it; header is the
// Idempotency-Key, quoted or bare. Of o it needs Secret. It fails on a header that is malformed.
func (o Options) KeyOf(scope, method, path, header string) (string, error) {
	client, err := parseKey(header)
	if err != nil {
		return "", err
	}
	return digest(o.Secret, scope, method, path, client), nil
}

// running is what a handler under Idempotent can ask for and say.
type running struct {
	key      string
	noEffect atomic.Bool
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
// guard.NoEffect is; [Exclusive] calls it when it refuses. Outside of Idempotent it does nothing.
func NoEffect(ctx context.Context) {
	if r := runningIn(ctx); r != nil {
		r.noEffect.Store(true)
	}
}
