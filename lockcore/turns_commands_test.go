package lockcore_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// A hand-off sends no command, and the end of a batch one.
// Shows: C2
func TestTurnsCommands(t *testing.T) {
	for name, c := range map[string]struct {
		inside time.Duration
		want   []string
	}{
		"hand-off":     {0, []string{"release"}},
		"four batches": {10 * time.Millisecond, []string{"rotate", "rotate", "rotate", "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, _, count := w.Locker(lockcore.Options{})
				relay := func(n int) {
					first := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
					var wg sync.WaitGroup
					for range n {
						wg.Go(func() {
							le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
							if err != nil {
								t.Error(err)
								return
							}
							time.Sleep(c.inside)
							_ = le.Release(t.Context())
						})
					}
					synctest.Wait() // until all calls wait
					count.Reset()
					_ = first.Release(t.Context())
					wg.Wait()
				}
				relay(4) // loads the scripts
				relay(4)
				if got := count.Commands(); !slices.Equal(got, c.want) {
					t.Errorf("sent %v, want %v", got, c.want)
				}
			})
		})
	}
}
