package locktest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// A call that does not wait is refused while another call has the key, and reports who has it.
func ExampleRecorder() {
	rec := new(locktest.Recorder)
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: rec})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	terms := lockcore.Terms{Wait: lockcore.NoWait}
	_ = guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error {
		return guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error { return nil }) // with the ctx of another call
	})

	fmt.Println("calls:", len(rec.Calls()))
	fmt.Println("granted:", len(locktest.EventsOf[event.Granted](rec)))
	for _, refused := range locktest.EventsOf[event.Refused](rec) {
		fmt.Println("refused:", refused.Contended)
	}
	// Output:
	// calls: 2
	// granted: 1
	// refused: true
}

// A Recorder keeps what several goroutines report, in order, and forgets it on Reset.
func TestRecorder(t *testing.T) {
	const goroutines, each = 8, 100
	var rec locktest.Recorder
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				ctx := rec.Start(t.Context(), event.Acquisition{Key: fmt.Sprint(g)})
				rec.Event(ctx, event.Granted{Token: int64(g), Attempt: i})
				rec.Event(ctx, event.Released{})
			}
		})
	}
	all.Wait()
	next := map[int64]int{}
	for _, e := range locktest.EventsOf[event.Granted](&rec) {
		if e.Attempt != next[e.Token] {
			t.Errorf("event %d of goroutine %d, want %d", e.Attempt, e.Token, next[e.Token])
		}
		next[e.Token]++
	}
	if n, m := len(rec.Calls()), len(rec.Events()); len(next) != goroutines || n != goroutines*each || m != 2*n {
		t.Errorf("%d calls, %d events of %d goroutines", n, m, len(next))
	}
	rec.Reset()
	if rec.Calls() != nil || rec.Events() != nil {
		t.Errorf("after Reset: %v, %v", rec.Calls(), rec.Events())
	}
}
