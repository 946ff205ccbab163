package asynqmw

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// absent is a value that a document does not have.
type absent struct{}

// decodeExact is decodeJSON for a payload whose text is valid Unicode. encoding/json replaces invalid text by U+FFFD,
// so different payloads would be equal. It refuses more than 10,000 levels, which bounds the recursion here.
func decodeExact(b []byte) (any, error) {
	if !utf8.Valid(b) || loneSurrogate(b) {
		return nil, errInexact
	}
	return decodeJSON(b)
}

// loneSurrogate reports whether b, if it is JSON, has an escaped half of a surrogate pair without the other one. JSON has
// backslashes only in strings.
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

// surrogate returns whether b begins with the escape of the high ('h') or the low half ('l') of a surrogate pair, or
// with neither (0).
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

// appendCanonical appends a form of v, a document of decodeJSON, that is the same for equal documents only. Each value
// begins with a letter for its type, and texts and lists have their lengths in front.
func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case absent:
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

// canonicalNumber returns the same text for all forms of one number: its digits without zeros at either end, and the
// power of ten. Nothing is rounded. A number with an absurd exponent is returned unchanged.
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
