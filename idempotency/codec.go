package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Codec encodes and decodes results. It must be safe for concurrent use. A new version of a codec
// must decode what an earlier one has encoded, because records outlive a deploy.
type Codec interface {
	// Name returns the name of the codec, which is stored with each record. It is always the same,
	// and has 1 to 32 characters of printable ASCII. A record with another name is an error.
	Name() string
	// Encode returns the bytes of v, or an error if it cannot encode v. Later changes of v and
	// later calls must not change the bytes.
	Encode(v any) ([]byte, error)
	// Decode sets the value that v points to, which is zero. It returns an error if v has a type
	// that it cannot decode. It must not keep or change data, and must not panic on any input.
	Decode(data []byte, v any) error
}

// JSON returns the default Codec. It uses encoding/json, which ignores unexported fields and fields
// with the tag json:"-". guard.OnceValue returns an error for a result with such fields.
func JSON() Codec { return jsonCodec{} }

// Bytes returns a Codec for results of type []byte. It stores them unchanged.
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
