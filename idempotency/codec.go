package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Codec turns results into bytes and back. It must be safe for concurrent use. What it writes today it must read
// tomorrow: records outlive a deploy. Test one of your own with locktest.Codec.
type Codec interface {
	// Name is stored with each record, always the same 1 to 32 characters of printable ASCII. A record written by another codec is refused.
	Name() string
	// Encode returns bytes that neither v nor the next call changes. A v that it cannot encode is an error.
	Encode(v any) ([]byte, error)
	// Decode fills v, a pointer to a zero value; it neither keeps nor changes data. It must not panic on any input. A v of a type
	// that it cannot fill is an error.
	Decode(data []byte, v any) error
}

// JSON is the default Codec, encoding/json.
func JSON() Codec { return jsonCodec{} }

// Bytes is a Codec for results of type []byte, stored as they are.
func Bytes() Codec { return bytesCodec{} }

type jsonCodec struct{}

func (jsonCodec) Name() string                    { return "json" }
func (jsonCodec) Encode(v any) ([]byte, error)    { return json.Marshal(v) }
func (jsonCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

type bytesCodec struct{}

func (bytesCodec) Name() string { return "bytes" }

func (bytesCodec) Encode(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("idempotency: codec bytes cannot encode %T", v)
	}
	return bytes.Clone(b), nil
}

func (bytesCodec) Decode(data []byte, v any) error {
	p, ok := v.(*[]byte)
	if !ok || p == nil {
		return fmt.Errorf("idempotency: codec bytes cannot decode into %T", v)
	}
	*p = append([]byte(nil), data...)
	return nil
}
