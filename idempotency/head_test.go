package idempotency_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Head reads from the first 512 bytes of a record how its run ended, and the text of a failure. It
// refuses other bytes.
func TestHead(t *testing.T) {
	long := strings.Repeat("no such account; ", 200)
	for _, r := range []idempotency.Content{
		{Ending: idempotency.Done, Codec: "json", Data: []byte(long)},
		{Ending: idempotency.Done, Codec: "json"},
		{Ending: idempotency.Failed, Data: []byte(long)},
		{Ending: idempotency.Failed, Data: []byte("short")},
		{Ending: idempotency.Failed, Data: []byte(long), Fingerprint: []byte("0123456789abcdef")},
		{Ending: idempotency.NotKept},
	} {
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b = b[:min(len(b), 512)]
		state, failure, err := idempotency.Head(b)
		if err != nil || state != r.Ending || !strings.HasPrefix(r.Failure(), failure) || len(failure) < min(len(r.Failure()), 400) {
			t.Errorf("%v: %v, %d bytes of %d, %v", r.Ending, state, len(failure), len(r.Failure()), err)
		}
	}
	for _, b := range []string{"", "x", "record", "\x01\x09\x00\x00", "\x03\x01\x00\x00", "\x01\x02\xff\x00", "\x01\x02\x00\x01too long"} {
		if _, _, err := idempotency.Head([]byte(b)); !errors.Is(err, idempotency.ErrFormat) {
			t.Errorf("%q: %v", b, err)
		}
	}
}
