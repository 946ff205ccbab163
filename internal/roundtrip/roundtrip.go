// Package roundtrip finds results that a replay would not return as the run returned them. guard
// and sqlonce use it when a type of result is recorded for the first time.
package roundtrip

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Type returns an error if c is idempotency.JSON and values of type T cannot come back from it,
// because T is an interface with methods, or has a field that encoding/json ignores or cannot
// encode.
func Type[T any](c idempotency.Codec) error {
	if c != idempotency.JSON() {
		return nil
	}
	return ofType(reflect.TypeFor[T]()).err
}

// Value returns an error if a replay would not return v, whose encoding is data. It checks the
// values of a type until one has passed. If other values of the type may fail, for example if a
// pointer was nil, it checks each value.
func Value[T any](c idempotency.Codec, v T, data []byte) error {
	t := reflect.TypeFor[T]()
	k := checked{c.Name(), t}
	mu.RLock()
	ok := passed[k]
	mu.RUnlock()
	if ok {
		return nil
	}
	each := false
	if c == idempotency.JSON() {
		each = ofType(t).each
		if path := ignoredIn(reflect.ValueOf(v), t.String()); path != "" {
			return fmt.Errorf("codec json does not store the field %s: %s", path, remedy)
		}
	}
	if err := returns(c, v, data); err != nil {
		return errtext.Prefix(fmt.Sprintf("a value of type %v does not come back from codec %s", t, c.Name()), err)
	}
	if !each {
		mu.Lock()
		passed[k] = true
		mu.Unlock()
	}
	return nil
}

const remedy = "export it, give the type MarshalJSON and UnmarshalJSON, use another type for the result, or set another Codec"

// checked names the values of a type that a codec has encoded.
type checked struct {
	codec string
	reflect.Type
}

//nolint:gochecknoglobals // facts about types, which are the same for all callers
var (
	mu     sync.RWMutex
	passed = map[checked]bool{}

	types sync.Map // reflect.Type: *verdict, for JSON
)

func ofType(t reflect.Type) *verdict {
	if v, ok := types.Load(t); ok {
		return v.(*verdict) //nolint:errcheck,forcetypeassert // types has no others
	}
	v := judge(t)
	types.Store(t, v)
	return v
}

// returns decodes data, and compares the encoding of the result with data. Codecs may write maps in
// any order, so encodings are equal if they have the same bytes in any order. An encoding with a
// time or a random number is never equal: it differs from another encoding of v too.
func returns[T any](c idempotency.Codec, v T, data []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec %q panicked: %v", c.Name(), p)
		}
	}()
	var back T
	if err := c.Decode(data, &back); err != nil {
		return errtext.Prefix("decode it", err)
	}
	second, err := c.Encode(back)
	if err != nil {
		return errtext.Prefix("encode it again", err)
	}
	if sameBytes(data, second) {
		return nil
	}
	if third, err := c.Encode(v); err != nil || !sameBytes(data, third) { // after second, so that a clock between the two shows
		return nil // the encodings of this codec cannot be compared
	}
	return fmt.Errorf("the encoding has %d bytes, and others (%d bytes) after it was decoded", len(data), len(second))
}

func sameBytes(a, b []byte) bool {
	var n [256]int
	for _, c := range a {
		n[c]++
	}
	for _, c := range b {
		n[c]--
	}
	return n == [256]int{}
}

// marshals reports whether encoding/json calls a method of t. It calls a method of a pointer only
// if the value is addressable.
func marshals(t reflect.Type, addressable bool) bool {
	for _, m := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[textMarshaler]()} {
		if t.Implements(m) || addressable && reflect.PointerTo(t).Implements(m) {
			return true
		}
	}
	return false
}

type textMarshaler interface{ MarshalText() ([]byte, error) }
