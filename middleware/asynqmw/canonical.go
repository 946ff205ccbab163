package asynqmw

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/jsonkey"
)

var errInexact = errors.New("the text is not valid Unicode")

// decodeExact is jsonkey.Decode, but returns an error for text that is not valid Unicode.
// encoding/json replaces such text by U+FFFD, so different payloads would be equal. It returns an
// error for more than 10,000 levels, which bounds the recursion of appendCanonical.
func decodeExact(b []byte) (any, error) {
	if !utf8.Valid(b) || loneSurrogate(b) {
		return nil, errInexact
	}
	return jsonkey.Decode(b)
}

// loneSurrogate reports whether b, if it is JSON, has an escaped half of a surrogate pair without
// the other half. It looks at backslashes only, because JSON has them only in strings.
func loneSurrogate(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		switch half := surrogate(b[i:]); {
		case half == 0:
			i++
		case half == 'h' && surrogate(b[i+6:]) == 'l':
			i += 11
		default:
			return true
		}
	}
	return false
}

// surrogate returns 'h' if b begins with the escape of the high half of a surrogate pair. It
// returns 'l' for the low half, and 0 otherwise.
func surrogate(b []byte) byte {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	switch {
	case err != nil || n < 0xd800 || n > 0xdfff:
		return 0
	case n < 0xdc00:
		return 'h'
	default:
		return 'l'
	}
}

// appendCanonical appends the canonical form of v, a document of jsonkey.Decode. Two documents have the
// same form only if they are equal. Each value begins with a letter for its type. The length of a
// text, list or object precedes its content.
func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case jsonkey.Absent:
		return append(b, '-')
	case bool:
		return append(b, strconv.FormatBool(v)[0])
	case json.Number:
		return appendText(append(b, '#'), canonicalNumber(v.String()))
	case string:
		return appendText(append(b, '"'), v)
	case []any:
		b = binary.AppendUvarint(append(b, '['), uint64(len(v)))
		for _, e := range v {
			b = appendCanonical(b, e)
		}
		return b
	case map[string]any:
		b = binary.AppendUvarint(append(b, '{'), uint64(len(v)))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = appendCanonical(appendText(b, name), v[name])
		}
		return b
	}
	panic("asynqmw: not a JSON document")
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// canonicalNumber returns the same text for all forms of one number: its digits without leading and
// trailing zeros, and the power of ten. It does not round. It returns a number unchanged if its
// exponent is beyond ± 2³¹.
func canonicalNumber(s string) string {
	digits, negative := strings.CutPrefix(s, "-")
	power := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		var err error
		if power, err = strconv.Atoi(digits[i+1:]); err != nil || power > 1<<31 || power < -1<<31 {
			return s
		}
		digits = digits[:i]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	power += len(digits) - len(short) - len(fraction)
	if negative {
		short = "-" + short
	}
	return short + "e" + strconv.Itoa(power)
}
