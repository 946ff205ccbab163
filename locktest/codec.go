package locktest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Codec fails t if c breaks a promise of [idempotency.Codec] for results of type T. values are
// samples of such results. Give it at least one value, and better several different ones, with all
// that a result may contain. Run it with -race. Codec checks that
//
//   - the name is 1 to 32 characters of printable ASCII and always the same,
//   - each value is, by reflect.DeepEqual, unchanged by Encode and equal after Decode into a zero
//     value, even in many goroutines at once,
//   - a later change of the value, or the next call, does not change the bytes that Encode
//     returned,
//   - Decode does not write to its input, and the decoded value shares memory neither with the
//     input nor with values decoded before,
//   - Decode of damaged input does not panic,
//   - to encode a channel or a function, or to decode into a channel, returns an error,
//   - none of these calls panics.
//
// Codec does not check Decode into a value that is not zero: guard.OnceValue never does that, and
// encoding/json would keep parts of the old value. It does not check how much memory or time
// damaged input costs.
func Codec[T any](t *testing.T, c idempotency.Codec, values ...T) {
	t.Helper()
	for _, err := range checkCodec(c, values) {
		t.Errorf("locktest: codec: %v", err)
	}
}

// checkCodec returns the broken promises of c, at most one error for each check.
func checkCodec[T any](c idempotency.Codec, values []T) (problems []error) {
	if c == nil || len(values) == 0 {
		return []error{errors.New("it needs a codec and at least one value")}
	}
	k := codecChecks[T]{tried{c}, values}
	check := func(err error) bool {
		if err != nil {
			problems = append(problems, err)
		}
		return err == nil
	}
	check(k.sameName())
	check(k.unsupported())
	if check(k.roundTrip()) { // without a round trip, the other checks would report the same
		check(k.damaged())
		check(k.wrongType())
		if check(k.decoded()) && check(k.encoded()) { // a codec that shares memory would also cause a data race
			check(k.concurrent())
		}
	}
	return problems
}

// panicked is a panic of a codec, as an error.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// tried calls a codec and turns its panics into errors.
type tried struct{ c idempotency.Codec }

func caught(err *error) {
	if p := recover(); p != nil {
		*err = &panicked{p}
	}
}

func (t tried) name() (s string, err error) {
	defer caught(&err)
	return t.c.Name(), nil
}

func (t tried) encode(v any) (b []byte, err error) {
	defer caught(&err)
	return t.c.Encode(v)
}

func (t tried) decode(b []byte, v any) (err error) {
	defer caught(&err)
	return t.c.Decode(b, v)
}

type codecChecks[T any] struct {
	tried
	values []T
}

func (k codecChecks[T]) sameName() error {
	first, err := k.name()
	if err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if _, err := (idempotency.Content{Ending: idempotency.Done, Codec: first}).Encode(); err != nil {
		return fmt.Errorf("name %q cannot be stored in a record: %w", first, err)
	}
	for _, v := range k.values {
		_, _ = k.encode(v)
		again, err := k.name()
		if err != nil {
			return fmt.Errorf("name: %w", err)
		}
		if again != first {
			return fmt.Errorf("name was %q and is now %q", first, again)
		}
	}
	return nil
}

// copied encodes and decodes v, and returns the result. It fails if the result differs from v.
func (k codecChecks[T]) copied(v T) (w T, err error) {
	b, err := k.encode(v)
	if err != nil {
		return w, fmt.Errorf("encode of %s: %w", brief(v), err)
	}
	if err := k.decode(append([]byte{}, b...), &w); err != nil { // never nil, because data that is read from a record is not nil
		return w, fmt.Errorf("decode of %s, encoded to %s: %w", brief(v), brief(b), err)
	}
	if !reflect.DeepEqual(v, w) {
		return w, fmt.Errorf("%s is decoded as %s", brief(v), brief(w))
	}
	return w, nil
}

func (k codecChecks[T]) roundTrip() error {
	for _, v := range k.values {
		if _, err := k.copied(v); err != nil {
			return err
		}
	}
	return nil
}

func (k codecChecks[T]) concurrent() error {
	const goroutines, rounds = 8, 16
	var wg sync.WaitGroup
	var problems [goroutines]error
	start := make(chan struct{})
	for g := range goroutines {
		wg.Go(func() {
			<-start
			for n := range rounds * len(k.values) {
				if _, err := k.copied(k.values[(g+n)%len(k.values)]); err != nil && problems[g] == nil {
					problems[g] = fmt.Errorf("in many goroutines at once: %w", err)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	return nil
}

// encoded checks that the bytes that Encode returned do not change. It changes only copies of the
// values, because the values belong to the caller.
func (k codecChecks[T]) encoded() error {
	for _, v := range k.values {
		w, err := k.copied(v)
		if err != nil {
			return err
		}
		b, err := k.encode(w)
		if err != nil {
			return fmt.Errorf("encode of %s after Decode: %w", brief(w), err)
		}
		was := bytes.Clone(b)
		scribble(&w)
		if !bytes.Equal(b, was) {
			return fmt.Errorf("the bytes that Encode returned for %s change with the value", brief(v))
		}
		_, _ = k.encode(w) // the value is arbitrary now
		for _, other := range k.values {
			_, _ = k.encode(other)
		}
		if !bytes.Equal(b, was) {
			return fmt.Errorf("the bytes that Encode returned for %s are changed by the next call", brief(v))
		}
	}
	return nil
}

// decoded checks that the values that Decode filled do not change.
func (k codecChecks[T]) decoded() error {
	for _, v := range k.values {
		b, err := k.encode(v)
		if err != nil {
			return fmt.Errorf("encode of %s: %w", brief(v), err)
		}
		b = append([]byte{}, b...)
		was := bytes.Clone(b)
		var first, second T
		if err := errors.Join(k.decode(b, &first), k.decode(bytes.Clone(was), &second)); err != nil {
			return fmt.Errorf("decode of %s, encoded to %s: %w", brief(v), brief(was), err)
		}
		if !bytes.Equal(b, was) {
			return fmt.Errorf("decode of %s writes to its input", brief(v))
		}
		for i := range b {
			b[i] = ^b[i]
		}
		if !reflect.DeepEqual(first, v) {
			return fmt.Errorf("the decoded value of %s shares memory with its input", brief(v))
		}
		scribble(&first)
		if !reflect.DeepEqual(second, v) {
			return fmt.Errorf("the decoded value of %s changes with an earlier decoded value", brief(v))
		}
	}
	return nil
}

func (k codecChecks[T]) damaged() error {
	for _, v := range k.values {
		b, err := k.encode(v)
		if err != nil {
			return fmt.Errorf("encode of %s: %w", brief(v), err)
		}
		for bad := range damage(b) {
			var w T
			if err := k.decode(bad, &w); errors.As(err, new(*panicked)) {
				return fmt.Errorf("decode of damaged input %s: %w", brief(bad), err)
			}
		}
	}
	return nil
}

func (k codecChecks[T]) wrongType() error {
	for _, v := range k.values {
		b, err := k.encode(v)
		if err != nil || empty(reflect.ValueOf(v)) { // JSON encodes an empty value as null, which it decodes into any type
			continue
		}
		for _, target := range []any{new(chan struct{}), make(chan struct{})} {
			if err := k.decode(b, target); err == nil || errors.As(err, new(*panicked)) {
				return fmt.Errorf("decode of %s into a %T must be an error, not %w", brief(v), target, orNothing(err))
			}
		}
	}
	return nil
}

func (k codecChecks[T]) unsupported() error {
	for _, v := range []any{make(chan struct{}), func() {}} {
		if _, err := k.encode(v); err == nil || errors.As(err, new(*panicked)) {
			return fmt.Errorf("encode of a %T must be an error, not %w", v, orNothing(err))
		}
	}
	if _, err := k.encode(nil); errors.As(err, new(*panicked)) { // nil may be a result of an interface type
		return fmt.Errorf("encode of nil: %w", err)
	}
	return nil
}

var errNothing = errors.New("success")

func orNothing(err error) error {
	if err == nil {
		return errNothing
	}
	return err
}
