package lockcore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
)

// 64 goroutines with a key each.
func BenchmarkPar(b *testing.B) {
	l := benchLocker(b, lockcore.Options{})
	b.ReportAllocs()
	var wg sync.WaitGroup
	per := b.N/64 + 1
	for i := range 64 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			for range per {
				le, err := l.Acquire(b.Context(), key, lockcore.Terms{Wait: lockcore.Forever})
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
