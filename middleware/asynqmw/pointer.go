package asynqmw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// pointer is a compiled JSON pointer (RFC 6901).
type pointer struct {
	text   string
	tokens []string
}

// mustPointer compiles s. It panics if section 3 of RFC 6901 does not allow s. fn is the caller,
// for the text of the panic.
func mustPointer(fn, s string) pointer {
	p := pointer{text: s}
	if s == "" {
		return p // the whole document
	}
	if s[0] != '/' {
		panic(fmt.Sprintf("asynqmw: %s: JSON pointer %q does not begin with a slash", fn, s))
	}
	for token := range strings.SplitSeq(s[1:], "/") {
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(rest, "~") {
			panic(fmt.Sprintf("asynqmw: %s: JSON pointer %q has a ~ that is neither ~0 nor ~1", fn, s))
		}
		p.tokens = append(p.tokens, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return p
}

// find returns the value that p points to, and whether there is one.
func (p pointer) find(doc any) (v any, ok bool) {
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

// absent stands for a value that a document does not have. It differs from null.
type absent struct{}

// remove removes the value that p points to from doc. The other elements of an array keep their
// indexes. p must not be empty.
func (p pointer) remove(doc any) {
	last := len(p.tokens) - 1
	parent, _ := pointer{tokens: p.tokens[:last]}.find(doc)
	switch d := parent.(type) {
	case map[string]any:
		delete(d, p.tokens[last])
	case []any:
		if i, ok := index(p.tokens[last]); ok && i < len(d) {
			d[i] = absent{}
		}
	}
}

// value returns the text of the scalar that p points to.
func (p pointer) value(doc any) (string, error) {
	found, ok := p.find(doc)
	if !ok {
		return "", fmt.Errorf("no value at %q", p.text)
	}
	switch v := found.(type) {
	case string:
		if v == "" {
			return "", fmt.Errorf("the value at %q is an empty string", p.text)
		}
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "", fmt.Errorf("the value at %q is null", p.text)
	default:
		return "", fmt.Errorf("the value at %q is an object or array, must be a string, number or boolean", p.text)
	}
}

// index parses an array index: digits without leading zeros. It does not accept "-", the element
// after the last one, because that element does not exist.
func index(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && strconv.Itoa(i) == token
}

// decodeJSON decodes b, which must be one JSON value. Numbers keep their text, because two large
// account numbers can be equal as float64.
func decodeJSON(b []byte) (doc any, err error) {
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
