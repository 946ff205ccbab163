package httpmw

import (
	"context"
	"net/http"
	"strings"
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
	key := values[0]
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

type keyKey struct{}

// Key returns the key under which this package guards the request of ctx, or "" outside of it: a digest that gives
// away neither the client's key nor its scope. It is the same for every repetition, so it can be passed downstream as
// an idempotency key, or stored in the transaction of the effect; guard.Token takes it, and so does an operator's Clear
// (lockcore.KindOnce).
func Key(ctx context.Context) string {
	key, _ := ctx.Value(keyKey{}).(string)
	return key
}
