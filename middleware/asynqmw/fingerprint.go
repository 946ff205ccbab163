package asynqmw

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/jsonkey"
)

// FingerprintFunc returns the bytes that must be equal in all tasks of a key. They may have any
// length, because only a digest is stored. If it returns an error, the task does not run, asynq
// gets the error and retries, and the Observer gets event.NoKey. It is called once per delivery,
// from several goroutines. [Fields] and [Except] return a FingerprintFunc, and [WholePayload] is
// one.
type FingerprintFunc func(t *asynq.Task) ([]byte, error)

// WholePayload is a [FingerprintFunc] that compares the whole payload. Two JSON payloads are equal
// if they have the same values:
//
//   - The order of the names and white space do not count.
//   - 1.0 equals 1, and integers of any size are compared exactly.
//   - If a name occurs twice in an object, the last value counts, as in encoding/json.
//
// A payload is compared byte by byte if it is not JSON, is nested more than 10,000 levels deep, or
// has text that is not valid Unicode. WholePayload never returns an error.
func WholePayload(t *asynq.Task) ([]byte, error) {
	if doc, err := decodeExact(t.Payload()); err == nil {
		return appendCanonical([]byte{'j'}, doc), nil
	}
	return append([]byte{'b'}, t.Payload()...), nil
}

// Fields returns a [FingerprintFunc] that compares the values at JSON pointers (RFC 6901), such as
// "/amount" and "/currency". Values are compared as by [WholePayload], including objects and
// arrays. A missing value differs from every value, including null. The FingerprintFunc returns an
// error for a payload that WholePayload compares byte by byte, and for one that has none of the
// values.
//
// Fields panics without a pointer, on an empty pointer (use WholePayload), and on one that RFC 6901
// does not allow.
func Fields(pointers ...string) FingerprintFunc {
	compiled := mustPointers("Fields", pointers)
	return func(t *asynq.Task) ([]byte, error) {
		doc, err := decodeExact(t.Payload())
		if err != nil {
			return nil, fmt.Errorf("no value at %q: payload is not JSON: %w", compiled[0].Text, err)
		}
		var b []byte
		found := false
		for _, p := range compiled {
			v, ok := p.Find(doc)
			if !ok {
				v = jsonkey.Absent{}
			}
			found = found || ok
			b = appendCanonical(b, v)
		}
		if !found {
			return nil, fmt.Errorf("no value at %q or at any other of the %d pointers", compiled[0].Text, len(compiled))
		}
		return b, nil
	}
}

// Except returns a [FingerprintFunc] that compares a JSON payload without the values at JSON
// pointers (RFC 6901), such as "/sent_at". Values are compared as by [WholePayload]. A pointer to a
// missing value is not an error. The FingerprintFunc returns an error for a payload that
// WholePayload compares byte by byte.
//
// Except panics without a pointer, on an empty pointer, and on one that RFC 6901 does not allow.
func Except(pointers ...string) FingerprintFunc {
	compiled := mustPointers("Except", pointers)
	return func(t *asynq.Task) ([]byte, error) {
		doc, err := decodeExact(t.Payload())
		if err != nil {
			return nil, fmt.Errorf("payload is not JSON: %w", err)
		}
		for _, p := range compiled {
			p.Remove(doc)
		}
		return appendCanonical(nil, doc), nil
	}
}

// mustPointers compiles pointers. It sorts them, so that their order does not change the
// fingerprint.
func mustPointers(fn string, pointers []string) []jsonkey.Pointer {
	if len(pointers) == 0 {
		panic(fmt.Sprintf("asynqmw: %s: at least one JSON pointer is needed", fn))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(pointers)))
	compiled := make([]jsonkey.Pointer, len(sorted))
	for i, p := range sorted {
		if p == "" {
			panic(fmt.Sprintf("asynqmw: %s: JSON pointer \"\" names the whole payload, use WholePayload", fn))
		}
		compiled[i] = jsonkey.MustPointer("asynqmw: "+fn, p)
	}
	return compiled
}

// payloadKey is the ctx key of an *atomic.Bool. A KeyFunc sets it if a key has only one payload:
// ByTaskID and ByPayload do, alone or inside a Join. Once does not compare payloads of such a key.
type payloadKey struct{}

func onePayload(ctx context.Context) {
	if one, ok := ctx.Value(payloadKey{}).(*atomic.Bool); ok {
		one.Store(true)
	}
}
