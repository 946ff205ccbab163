package idempotency_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// panics is a codec that breaks the contract of Codec: it panics.
type panics struct{ idempotency.Codec }

func (panics) Decode([]byte, any) error { panic("nil pointer") }

// Value decodes only with the codec that wrote the record. Each failure of a codec, also a panic,
// is an error.
func TestValue(t *testing.T) {
	json := idempotency.JSON()
	done := idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte(`"receipt"`)}
	for name, row := range map[string]struct {
		r     idempotency.Content
		c     idempotency.Codec
		wants string // in the error; empty: there is none
	}{
		"done":         {done, json, ""},
		"other codec":  {done, idempotency.Bytes(), `codec "json", want "bytes"`},
		"other type":   {idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte("7")}, json, "decode value"},
		"codec panics": {done, panics{json}, "nil pointer"},
		"no codec":     {done, nil, "panicked"},
		"failed":       {idempotency.Content{Ending: idempotency.Failed, Data: []byte(`"receipt"`)}, json, "failed"},
		"not kept":     {idempotency.Content{Ending: idempotency.NotKept}, json, "not kept"},
		"no record":    {idempotency.Content{}, json, "ending 0"},
	} {
		var got string
		switch err := row.r.Value(row.c, &got); {
		case row.wants == "" && (err != nil || got != "receipt"):
			t.Errorf("%s: %q, %v", name, got, err)
		case row.wants != "" && (err == nil || !strings.Contains(err.Error(), row.wants)):
			t.Errorf("%s: %v, want %q", name, err, row.wants)
		}
	}
}

// The error of Value wraps that of the codec.
func TestValueWrapsTheCodec(t *testing.T) {
	boom := errors.New("boom")
	r := idempotency.Content{Ending: idempotency.Done, Codec: "json"}
	if err := r.Value(refuses{idempotency.JSON(), boom}, new(string)); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

type refuses struct {
	idempotency.Codec
	err error
}

func (c refuses) Decode([]byte, any) error { return c.err }

// Failure returns a text only for a record of a failed run.
func TestFailure(t *testing.T) {
	for want, r := range map[string]idempotency.Content{
		"card expired": {Ending: idempotency.Failed, Data: []byte("card expired")},
		"":             {Ending: idempotency.Done, Codec: "json", Data: []byte("7")},
	} {
		if got := r.Failure(); got != want {
			t.Errorf("%+v: %q", r, got)
		}
	}
}

func TestEndingString(t *testing.T) {
	for want, s := range map[string]idempotency.Ending{
		"done": idempotency.Done, "failed": idempotency.Failed, "not kept": idempotency.NotKept, "ending 9": 9,
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
