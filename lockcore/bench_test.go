package lockcore_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// BenchmarkAcquire measures an uncontended call: one goroutine, one key.
func BenchmarkAcquire(b *testing.B) {
	l := benchLocker(b)
	b.ReportAllocs()
	for b.Loop() {
		le, err := l.Acquire(b.Context(), "k", lockcore.Terms{})
		if err != nil {
			b.Fatal(err)
		}
		_ = le.Release(b.Context())
	}
}

// BenchmarkReentry measures a nested call, which needs no round trip.
func BenchmarkReentry(b *testing.B) {
	l := benchLocker(b)
	outer, err := l.Acquire(b.Context(), "k", lockcore.Terms{})
	if err != nil {
		b.Fatal(err)
	}
	ctx := outer.Context()
	b.ReportAllocs()
	for b.Loop() {
		le, err := l.Acquire(ctx, "k", lockcore.Terms{})
		if err != nil {
			b.Fatal(err)
		}
		_ = le.Release(ctx)
	}
	_ = outer.Release(b.Context())
}

// BenchmarkReentryDerived measures a nested call whose ctx is derived from that of the hold.
func BenchmarkReentryDerived(b *testing.B) {
	l := benchLocker(b)
	outer, err := l.Acquire(b.Context(), "k", lockcore.Terms{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(outer.Context())
	defer cancel()
	for name, use := range map[string]func(context.Context){"unused": func(context.Context) {}, "used": func(ctx context.Context) { _ = ctx.Done() }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				le, err := l.Acquire(ctx, "k", lockcore.Terms{})
				if err != nil {
					b.Fatal(err)
				}
				use(le.Context())
				_ = le.Release(ctx)
			}
		})
	}
	_ = outer.Release(b.Context())
}

// BenchmarkHot measures a hand-off: 64 goroutines, one key.
func BenchmarkHot(b *testing.B) {
	benchCrowd(b, func(int) string { return "k" })
}

// BenchmarkPar measures a call whose commands are sent in groups: 64 goroutines with a key each.
func BenchmarkPar(b *testing.B) {
	benchCrowd(b, func(i int) string { return fmt.Sprint("k", i) })
}

func benchCrowd(b *testing.B, key func(int) string) {
	b.Helper()
	const goroutines = 64
	l := benchLocker(b)
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(max(goroutines/runtime.GOMAXPROCS(0), 1))
	b.RunParallel(func(pb *testing.PB) {
		key := key(int(n.Add(1)))
		for pb.Next() {
			le, err := l.Acquire(b.Context(), key, lockcore.Terms{Wait: lockcore.Forever})
			if err != nil {
				b.Error(err)
				return
			}
			_ = le.Release(b.Context())
		}
	})
}

func benchLocker(b *testing.B) *lockcore.Locker {
	b.Helper()
	l, err := lockcore.New(redistest.Real(b).Client(b), lockcore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { drop(l) })
	return l
}
