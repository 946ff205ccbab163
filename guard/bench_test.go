package guard_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A key that runs: two round trips.
func BenchmarkOnceFresh(b *testing.B) {
	locks := benchLocker(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		benchOnce(b, locks, strconv.Itoa(i), guard.Ran)
	}
}

// A key that is done: one round trip.
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
