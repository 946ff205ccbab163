package idempotency_test

import (
	"bytes"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Records contain these names, so the names do not change.
func TestCodecNames(t *testing.T) {
	for want, c := range map[string]idempotency.Codec{"json": idempotency.JSON(), "bytes": idempotency.Bytes()} {
		if got := c.Name(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	type receipt struct{ ID int }
	c := idempotency.JSON()
	b, err := c.Encode(receipt{ID: 7})
	if err != nil || string(b) != `{"ID":7}` {
		t.Fatalf("encoded to %s, %v", b, err)
	}
	var r receipt
	if err := c.Decode(b, &r); err != nil || r.ID != 7 {
		t.Errorf("decoded to %+v, %v", r, err)
	}
	if _, err := c.Encode(func() {}); err == nil {
		t.Error("a function was encoded")
	}
	for _, bad := range []string{"", "{", `{"ID":"x"}`, `{"ID":1} ` + "x"} {
		if err := c.Decode([]byte(bad), &r); err == nil {
			t.Errorf("%q was decoded", bad)
		}
	}
}

// Bytes stores its input unchanged. Neither the record shares memory with the encoded value, nor the
// decoded value with the record.
func TestBytes(t *testing.T) {
	c := idempotency.Bytes()
	for _, want := range [][]byte{nil, {}, {0}, []byte("\xff\x00text")} {
		value := bytes.Clone(want)
		b, err := c.Encode(value)
		for i := range value {
			value[i]++
		}
		if err != nil || !bytes.Equal(b, want) {
			t.Fatalf("%q was encoded to %q, %v", want, b, err)
		}
		got := []byte("from before")
		if err := c.Decode(b, &got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q was decoded to %q, %v", want, got, err)
		}
		for i := range b {
			b[i]++
		}
		if len(b) > 0 && bytes.Equal(got, b) {
			t.Error("what was decoded changes with the record")
		}
	}
	if _, err := c.Encode("text"); err == nil {
		t.Error("a string was encoded")
	}
	var s string
	if err := c.Decode(nil, &s); err == nil {
		t.Error("bytes were decoded into a string")
	}
	if err := c.Decode(nil, []byte{}); err == nil {
		t.Error("bytes were decoded into no pointer")
	}
}
