package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// claimed is the result of a call of Claim.
type claimed struct {
	lease  *lockcore.Lease
	record *lockcore.Record
	err    error
}

func claim(ctx context.Context, l *lockcore.Locker, print string) claimed {
	var c claimed
	c.lease, c.record, c.err = l.Claim(ctx, "k", lockcore.Claim{Terms: long, Fingerprint: []byte(print)})
	return c
}

// A call records bytes. A hundred waiters of its process get them without a command, each in its
// own slice.
// Shows: C2, O8
func TestTurnsRecord(t *testing.T) {
	testlevel.Full(t)
	const waiters = 100
	w, e := realWorld(t), newCallEvents()
	l, _, count := w.Locker(lockcore.Options{Observer: e})
	first := claim(t.Context(), l, "a")
	if first.lease == nil {
		t.Fatal(first.err)
	}
	out := make(chan claimed, waiters)
	for i := range waiters {
		print := []string{"a", ""}[i%2]
		go func() { out <- claim(e.call(t.Context(), i), l, print) }()
		e.until(t, i, event.Waiting{})
	}
	if c := claim(t.Context(), l, "b"); !errors.Is(c.err, lockcore.ErrMismatch) {
		t.Errorf("another payload during the run: %v, want ErrMismatch", c.err)
	}
	count.Reset()
	if err := first.lease.Complete(t.Context(), []byte("done"), time.Hour); err != nil {
		t.Error(err)
	}
	var records []*lockcore.Record
	for range waiters {
		c := <-out
		if c.err != nil || c.lease != nil || string(c.record.Data) != "done" || c.record.Attempt != 1 {
			t.Fatalf("a waiter got %+v, want the record", c)
		}
		records = append(records, c.record)
	}
	for i, r := range records {
		r.Data[0] = byte(i)
	}
	for i, r := range records {
		if r.Data[0] != byte(i) {
			t.Fatal("two records share their bytes")
		}
	}
	// Two, if the script was sent by its digest first and then in full.
	if n := count.Count("complete"); n > 2 || n != len(count.Commands()) {
		t.Errorf("the completion sent %v", count)
	}
	if c := claim(t.Context(), l, "b"); !errors.Is(c.err, lockcore.ErrMismatch) {
		t.Errorf("another payload after the completion: %v, want ErrMismatch", c.err)
	}
}

// A waiting claim has another fingerprint than the run that begins, in this process or in another
// one. It gets ErrMismatch and never runs.
// Shows: O6
func TestTurnsMismatch(t *testing.T) {
	testlevel.Full(t)
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("elsewhere: ", elsewhere), func(t *testing.T) {
			w, e := realWorld(t), newCallEvents()
			l, _, _ := w.Locker(lockcore.Options{Observer: e})
			other, _, _ := w.Locker(lockcore.Options{})
			first := claim(t.Context(), map[bool]*lockcore.Locker{true: other, false: l}[elsewhere], "") // an empty fingerprint matches all
			if first.lease == nil {
				t.Fatal(first.err)
			}
			const calls = 6
			out := make(chan claimed, calls)
			for i := range calls {
				print := []string{"a", "b"}[i%2]
				go func() {
					c := claim(e.call(t.Context(), i), l, print)
					if c.lease != nil {
						time.Sleep(100 * time.Millisecond) // the calls that are refused do not wait for its end
						c.err = errors.Join(c.err, c.lease.Complete(t.Context(), []byte(print), time.Hour))
						c.record = &lockcore.Record{Data: []byte(print)}
					}
					out <- c
				}()
				e.until(t, i, event.Waiting{})
			}
			_ = first.lease.Release(t.Context())
			done, mismatch := 0, 0
			for range calls {
				c := <-out
				m, ok := errors.AsType[*lockcore.MismatchError](c.err)
				switch {
				case ok && !m.Done:
					mismatch++
				case c.err == nil && string(c.record.Data) == "a":
					done++
				default:
					t.Errorf("a claim got %+v", c)
				}
			}
			if done != calls/2 || mismatch != calls/2 {
				t.Errorf("%d calls got the record, %d were refused", done, mismatch)
			}
		})
	}
}
