package guard_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// A key that runs takes two round trips.
func BenchmarkOnceFresh(b *testing.B) {
	locks := benchLocker(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		benchOnce(b, locks, strconv.Itoa(i), guard.Ran)
	}
}

// A key that is done takes one round trip.
func BenchmarkOnceReplay(b *testing.B) {
	locks := benchLocker(b)
	benchOnce(b, locks, "k", guard.Ran)
	b.ReportAllocs()
	for b.Loop() {
		benchOnce(b, locks, "k", guard.Replayed)
	}
}

func benchOnce(b *testing.B, locks *lockcore.Locker, key string, want guard.Outcome) {
	b.Helper()
	got, err := guard.Once(b.Context(), locks, key, guard.OnceOptions{}, func(context.Context) error { return nil })
	if err != nil || got != want {
		b.Fatal(got, err)
	}
}

func benchLocker(b *testing.B) *lockcore.Locker {
	b.Helper()
	locks, err := lockcore.New(redistest.Real(b).Client(b), lockcore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// BenchmarkChecks measures the part of a call before its first command. The Locker is closed, so
// the call ends there.
func BenchmarkChecks(b *testing.B) {
	locks := locktest.New(b)
	if err := locks.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	bytes := guard.OnceOptions{Codec: idempotency.Bytes(), Keep: time.Hour, Fingerprint: make([]byte, 32)}
	for name, call := range map[string]func() error{
		"Exclusive": func() error {
			return guard.Exclusive(b.Context(), locks, "k", lockcore.Terms{}, func(context.Context) error { return nil })
		},
		"Once": func() error {
			_, err := guard.Once(b.Context(), locks, "k", guard.OnceOptions{}, func(context.Context) error { return nil })
			return err
		},
		"OnceValue": func() error {
			_, err := guard.OnceValue(b.Context(), locks, "k", bytes, func(context.Context) ([]byte, error) { return nil, nil })
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); !errors.Is(err, lockcore.ErrClosed) {
					b.Fatal(err)
				}
			}
		})
	}
}
