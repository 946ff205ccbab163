package locktest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/locktest"
)

// broken is JSON, except for the functions that are set.
type broken struct {
	name   func() string
	encode func(v any) ([]byte, error)
	decode func(data []byte, v any) error
}

func (c broken) Name() string {
	if c.name != nil {
		return c.name()
	}
	return "broken"
}

func (c broken) Encode(v any) ([]byte, error) {
	if c.encode != nil {
		return c.encode(v)
	}
	return json.Marshal(v)
}

func (c broken) Decode(data []byte, v any) error {
	if c.decode != nil {
		return c.decode(data, v)
	}
	return json.Unmarshal(data, v)
}

var errBroken = errors.New("does not work")

// nameBroken, encodeBroken and so on return codecs that break one promise each, by a part of the
// error.
func nameBroken() map[string]idempotency.Codec {
	calls := 0
	named := func(f func() string) idempotency.Codec { return broken{name: f} }
	return map[string]idempotency.Codec{
		"must be 1 to 32":         named(func() string { return "" }),
		"33 bytes":                named(func() string { return strings.Repeat("x", 33) }),
		"not printable ASCII":     named(func() string { return "jsön" }),
		`name was "1" and is now`: named(func() string { calls++; return strconv.Itoa(calls) }),
		"name: panic: no name":    named(func() string { panic("no name") }),
	}
}

func encodeBroken() map[string]idempotency.Codec {
	encode := func(f func(v any) ([]byte, error)) idempotency.Codec { return broken{encode: f} }
	var mu sync.Mutex
	var buf bytes.Buffer
	return map[string]idempotency.Codec{
		"encode of locktest_test.receipt {ID:r-1": encode(func(v any) ([]byte, error) {
			if r, ok := v.(receipt); ok && r.Cents > 0 {
				return nil, errBroken
			}
			return json.Marshal(v)
		}),
		"are changed by the next call": encode(func(v any) ([]byte, error) {
			b, err := json.Marshal(v)
			mu.Lock()
			defer mu.Unlock()
			buf.Reset()
			buf.Write(b)
			return buf.Bytes(), err
		}),
		"is decoded as": encode(func(v any) ([]byte, error) {
			if r, ok := v.(receipt); ok {
				r.Tags = nil
				v = r
			}
			return json.Marshal(v)
		}),
		"encode of a chan struct {} must be an error, not success": encode(func(v any) ([]byte, error) {
			if b, err := json.Marshal(v); err == nil {
				return b, nil
			}
			return fmt.Append(nil, v), nil
		}),
		"encode of a chan struct {} must be an error, not panic": encode(func(v any) ([]byte, error) {
			b, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			return b, nil
		}),
		"encode of a func() must be an error": encode(func(v any) ([]byte, error) {
			if f, ok := v.(func()); ok {
				f()
				return nil, nil
			}
			return json.Marshal(v)
		}),
		"encode of nil: panic": encode(func(v any) ([]byte, error) { _ = reflect.TypeOf(v).Name(); return json.Marshal(v) }),
	}
}

func decodeBroken() map[string]idempotency.Codec {
	decode := func(f func(data []byte, v any) error) idempotency.Codec { return broken{decode: f} }
	calls := 0
	return map[string]idempotency.Codec{
		"does not work": decode(func([]byte, any) error { return errBroken }),
		"damaged input": decode(func(data []byte, v any) error {
			if data[len(data)-1] != '}' {
				return errBroken
			}
			return json.Unmarshal(data, v)
		}),
		"writes to its input": decode(func(data []byte, v any) error {
			defer func() {
				if len(data) > 0 {
					data[0] = 0
				}
			}()
			return json.Unmarshal(data, v)
		}),
		"every other time": decode(func(data []byte, v any) error {
			if calls++; calls%2 == 0 {
				return errors.New("every other time")
			}
			return json.Unmarshal(data, v)
		}),
		"into a *chan struct {} must be an error, not success": decode(func(data []byte, v any) error {
			if r, ok := v.(*receipt); ok {
				return json.Unmarshal(data, r)
			}
			return nil
		}),
		"into a *chan struct {} must be an error, not panic": decode(func(data []byte, v any) error {
			return json.Unmarshal(data, v.(*receipt)) //nolint:errcheck // broken
		}),
		"into a chan struct {} must be an error": decode(func(data []byte, v any) error {
			if _, ok := v.(chan struct{}); ok {
				return nil
			}
			return json.Unmarshal(data, v)
		}),
	}
}

// Codec finds and names each broken promise.
func TestCodecFindsWhatIsBroken(t *testing.T) {
	for _, table := range []map[string]idempotency.Codec{nameBroken(), encodeBroken(), decodeBroken()} {
		for want, c := range table {
			finds(t, want, locktest.CheckCodec(c, receipts()...))
		}
	}
}

func finds(t *testing.T, want string, problems []error) {
	t.Helper()
	if !slices.ContainsFunc(problems, func(err error) bool { return strings.Contains(err.Error(), want) }) {
		t.Errorf("%q is not among %v", want, problems)
	}
}

// lazyBytes is idempotency.Bytes without its copies.
func lazyBytes(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return nil, errBroken
}

// Codec finds shared memory.
func TestCodecFindsSharedMemory(t *testing.T) {
	values := [][]byte{[]byte("one"), []byte("two")}
	finds(t, "change with the value", locktest.CheckCodec(broken{encode: lazyBytes, decode: idempotency.Bytes().Decode}, values...))
	finds(t, "shares memory with its input", locktest.CheckCodec(broken{
		encode: idempotency.Bytes().Encode,
		decode: func(data []byte, v any) error {
			p, ok := v.(*[]byte)
			if !ok {
				return errBroken
			}
			*p = data
			return nil
		},
	}, values...))
	var mu sync.Mutex
	cache := map[string]*receipt{}
	finds(t, "changes with an earlier decoded value", locktest.CheckCodec(broken{decode: func(data []byte, v any) error {
		mu.Lock()
		defer mu.Unlock()
		p, ok := v.(**receipt)
		if !ok {
			return json.Unmarshal(data, v)
		}
		if cache[string(data)] == nil {
			r := new(receipt)
			if err := json.Unmarshal(data, r); err != nil {
				return err
			}
			cache[string(data)] = r
		}
		*p = cache[string(data)]
		return nil
	}}, &receipts()[1]))
}

// Codec finds a codec that is not safe for concurrent use, as far as it shows without -race.
func TestCodecFindsRaces(t *testing.T) {
	var inside atomic.Int32
	finds(t, "in many goroutines at once", locktest.CheckCodec(broken{encode: func(v any) ([]byte, error) {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			return nil, errBroken
		}
		for range 10 {
			runtime.Gosched()
		}
		return json.Marshal(v)
	}}, receipts()...))
}

// A codec that decodes everything to the first value is found by the second value.
func TestCodecFindsConstants(t *testing.T) {
	finds(t, "is decoded as", locktest.CheckCodec(broken{decode: func(_ []byte, v any) error { return json.Unmarshal([]byte("1"), v) }}, 1, 2))
}

// Without a codec or a value, Codec fails.
func TestCodecNeedsValues(t *testing.T) {
	finds(t, "at least one value", locktest.CheckCodec[int](idempotency.JSON()))
	finds(t, "needs a codec", locktest.CheckCodec(nil, 1))
}
