// Package jsonkey makes keys of values in JSON payloads, for the middlewares of queues.
package jsonkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// New returns a function that makes a key of the values of a payload at JSON pointers, joined by
// [Join]. It panics on a bad class, without a pointer, and on a pointer that RFC 6901 does not
// allow. caller begins the text of the panic, such as asynqmw: ByJSON.
func New(caller, class string, pointers ...string) func(payload []byte) (guard.Key, error) {
	MustClass(caller, class)
	if len(pointers) == 0 {
		panic(caller + ": at least one pointer is needed")
	}
	compiled := make([]Pointer, len(pointers))
	for i, p := range pointers {
		compiled[i] = MustPointer(caller, p)
	}
	return func(payload []byte) (guard.Key, error) {
		k := guard.Key{Class: class}
		doc, err := Decode(payload)
		if err != nil {
			return k, fmt.Errorf("no value at %q: payload is not JSON: %w", pointers[0], err)
		}
		ids := make([]string, len(compiled))
		for i, p := range compiled {
			if ids[i], err = p.value(doc); err != nil {
				return k, err
			}
		}
		k.ID = Join(ids...)
		return k, nil
	}
}

// MustClass panics if class is empty, has a colon, or is not a valid Terms.Name.
func MustClass(caller, class string) {
	if class == "" || strings.Contains(class, ":") {
		panic(fmt.Sprintf("%s: class is %q, must not be empty or have a colon", caller, class))
	}
	if err := (lockcore.Terms{Name: class}).Validate(); err != nil {
		panic(fmt.Sprintf("%s: class: %v", caller, err))
	}
}

var partEscaper = strings.NewReplacer("%", "%25", ",", "%2C")

// Join returns different texts for different lists of the same length. It does not escape a single
// part, so that other code can write its key by hand: account:42.
func Join(parts ...string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = partEscaper.Replace(p)
	}
	return strings.Join(escaped, ",")
}

var onceEscaper = strings.NewReplacer("%", "%25", "/", "%2F")

// OnceKey returns the name of the once key of a kind of work: KIND/KEY. The first slash ends the
// kind. In the kind a slash becomes %2F and a percent sign %25.
func OnceKey(kind string, k guard.Key) string {
	return onceEscaper.Replace(kind) + "/" + k.String() //planted:once-key-has-type
}

// Pointer is a compiled JSON pointer (RFC 6901).
type Pointer struct {
	Text   string
	tokens []string
}

// MustPointer compiles s. It panics if section 3 of RFC 6901 does not allow s.
func MustPointer(caller, s string) Pointer {
	p := Pointer{Text: s}
	if s == "" {
		return p // the whole document
	}
	if s[0] != '/' {
		panic(fmt.Sprintf("%s: JSON pointer %q does not begin with a slash", caller, s))
	}
	for token := range strings.SplitSeq(s[1:], "/") {
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(rest, "~") {
			panic(fmt.Sprintf("%s: JSON pointer %q has a ~ that is neither ~0 nor ~1", caller, s))
		}
		p.tokens = append(p.tokens, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return p
}

// Find returns the value that p points to, and whether there is one.
func (p Pointer) Find(doc any) (v any, ok bool) {
	for _, token := range p.tokens {
		found := false
		switch d := doc.(type) {
		case map[string]any:
			doc, found = d[token]
		case []any:
			if i, ok := index(token); ok && i < len(d) {
				doc, found = d[i], true
			}
		}
		if !found {
			return nil, false
		}
	}
	return doc, true
}

// Absent stands for a value that a document does not have. It differs from null.
type Absent struct{}

// Remove removes the value that p points to from doc. The other elements of an array keep their
// indexes. p must not be empty.
func (p Pointer) Remove(doc any) {
	last := len(p.tokens) - 1
	parent, _ := Pointer{tokens: p.tokens[:last]}.Find(doc)
	switch d := parent.(type) {
	case map[string]any:
		delete(d, p.tokens[last])
	case []any:
		if i, ok := index(p.tokens[last]); ok && i < len(d) {
			d[i] = Absent{}
		}
	}
}

// value returns the text of the scalar that p points to.
func (p Pointer) value(doc any) (string, error) {
	found, ok := p.Find(doc)
	if !ok {
		return "", fmt.Errorf("no value at %q", p.Text)
	}
	switch v := found.(type) {
	case string:
		if v == "" {
			return "", fmt.Errorf("the value at %q is an empty string", p.Text)
		}
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "", fmt.Errorf("the value at %q is null", p.Text)
	default:
		return "", fmt.Errorf("the value at %q is an object or array, must be a string, number or boolean", p.Text)
	}
}

// index parses an array index: digits without leading zeros. It does not accept "-", the element
// after the last one, because that element does not exist.
func index(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && strconv.Itoa(i) == token
}

// Decode decodes b, which must be one JSON value. Numbers keep their text, because two large
// account numbers can be equal as float64.
func Decode(b []byte) (doc any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("empty")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the value")
	}
	return doc, nil
}
