package lockcore_test

import (
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

func benchLocker(b *testing.B, o lockcore.Options) *lockcore.Locker {
	b.Helper()
	l, err := lockcore.New(redistest.Real(b).Client(b), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(b.Context()) })
	return l
}

// One goroutine, one key: what an uncontended call costs.
func BenchmarkAcquire(b *testing.B) {
	l := benchLocker(b, lockcore.Options{})
	b.ReportAllocs()
	for b.Loop() {
		le, err := l.Acquire(b.Context(), "k", lockcore.Terms{})
		if err != nil {
			b.Fatal(err)
		}
		_ = le.Release(b.Context())
	}
}

// 64 goroutines, one key: what a hand-over costs.
func BenchmarkHot(b *testing.B) {
	l := benchLocker(b, lockcore.Options{})
	b.ReportAllocs()
	var wg sync.WaitGroup
	per := b.N/64 + 1
	for range 64 {
		wg.Go(func() {
			for range per {
				le, err := l.Acquire(b.Context(), "k", lockcore.Terms{Wait: lockcore.Forever})
				if err != nil {
					b.Error(err)
					return
				}
				_ = le.Release(b.Context())
			}
		})
	}
	wg.Wait()
}

// A nested call costs no round trip.
func BenchmarkReentry(b *testing.B) {
	l := benchLocker(b, lockcore.Options{})
	outer, err := l.Acquire(b.Context(), "k", lockcore.Terms{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = outer.Release(b.Context()) }()
	b.ReportAllocs()
	for b.Loop() {
		le, err := l.Acquire(outer.Context(), "k", lockcore.Terms{})
		if err != nil {
			b.Fatal(err)
		}
		_ = le.Release(b.Context())
	}
}
