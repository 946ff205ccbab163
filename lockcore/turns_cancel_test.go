package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	oneWay = time.Millisecond // from a process to Redis, or back
	hold   = 3 * time.Millisecond

	inLine    = 4 // number of calls of process a
	everybody = -1
)

// acquire makes call i of process a, or the call of b if i < 0.
func (q *queue) acquire(ctx context.Context, i int) error {
	l := q.a
	if i < 0 {
		l = q.b
	}
	le, err := l.Acquire(ctx, "k", long)
	if err != nil {
		return err
	}
	q.keep(le, i, q.hold)
	if err := le.Release(ctx); err != nil && !q.died {
		q.T.Errorf("release: %v", err)
	}
	return nil
}

// cancelAt calls cancel at the n-th packet, counted from 1, that a sends or receives: at once, or
// the time after later.
func (q *queue) cancelAt(n int, after time.Duration, cancel func()) {
	end := func() { q.end(cancel) }
	q.faults.DelayFunc(func() time.Duration {
		q.packets++
		switch {
		case q.packets != n:
		case after == 0:
			end()
		default:
			time.AfterFunc(after, end)
		}
		return oneWay
	})
}

func (q *queue) end(cancel func()) {
	q.mu.Lock()
	q.ended = time.Now()
	q.mu.Unlock()
	cancel()
}

// reached reports whether the n-th packet was sent.
func (q *queue) reached(n int) (ok bool) {
	q.faults.DelayFunc(nil) // returns after the last call of the function
	return q.packets >= n
}

// claim is like acquire, for a once key.
func (q *queue) claim(ctx context.Context, i int) error {
	l := q.a
	if i < 0 {
		l = q.b
	}
	le, rec, err := l.Claim(ctx, "k", lockcore.Claim{Terms: long, AtMostOnce: true})
	switch {
	case err != nil:
		return err
	case rec != nil:
		if string(rec.Data) != "done" {
			q.T.Errorf("call %d got the record %q", i, rec.Data)
		}
		q.mu.Lock()
		q.records++
		q.mu.Unlock()
		return nil
	}
	if le.Attempt() != 2 {
		q.T.Errorf("call %d has attempt %d, want 2", i, le.Attempt())
	}
	q.keep(le, i, q.hold)
	if err := le.Complete(ctx, []byte("done"), time.Hour); err != nil {
		q.T.Errorf("complete: %v", err)
	}
	return nil
}

// line starts the calls of a one after the other, so that they wait. The ctx of call who is ctx, or
// of all calls if who is everybody.
func (q *queue) line(ctx context.Context, who int, call func(context.Context, int) error) {
	for i := range inLine {
		q.calls.Go(func() {
			if i != who && who != everybody {
				if err := call(q.T.Context(), i); err != nil {
					q.T.Errorf("call %d: %v", i, err)
				}
				return
			}
			err := call(ctx, i)
			q.mu.Lock()
			defer q.mu.Unlock()
			switch d := time.Since(q.ended); {
			case err == nil:
			case ctx.Err() == nil || !errors.Is(err, lockcore.ErrNotRun) || !errors.Is(err, context.Canceled):
				q.T.Errorf("the canceled call: %v", err)
			case d > q.bound:
				q.T.Errorf("the canceled call took %v to return", d)
			}
		})
		time.Sleep(2 * time.Millisecond)
	}
}

// settled checks that the calls of a were served in order of arrival. The key must be free or done
// and not abandoned, and its queue empty.
func (q *queue) settled(kind event.Kind) {
	t := q.T
	if !slices.IsSorted(q.served) {
		t.Errorf("served in the order %v", q.served)
	}
	time.Sleep(20 * time.Millisecond) // until the withdrawals in the background have ended
	h, err := q.b.Inspect(t.Context(), kind, "k")
	if err != nil || h.State != lockcore.StateFree && h.State != lockcore.StateDone || h.Queue != 0 {
		t.Errorf("at the end: %+v, %v", h, err)
	}
	if kind == event.KindExclusive {
		if err := q.acquire(t.Context(), -1); err != nil {
			t.Error(err)
		}
	} else if h.State == lockcore.StateFree {
		if err := q.claim(t.Context(), -1); err != nil {
			t.Error(err)
		}
	}
}

// exclusive lets b hold the key, a wait for it, and b wait again behind a.
func (q *queue) exclusive(ctx context.Context, who int) {
	theirs := q.Must(q.b.Acquire(q.T.Context(), "k", long))
	q.line(ctx, who, q.acquire)
	q.calls.Go(func() {
		if err := q.acquire(q.T.Context(), -1); err != nil {
			q.T.Errorf("b: %v", err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	q.keep(theirs, -1, q.hold)
	_ = theirs.Release(q.T.Context())
	q.calls.Wait()
	q.took = time.Since(q.start)
	if who >= 0 && q.granted < inLine+1 { // b has two holds
		q.T.Errorf("%d holds", q.granted)
	}
	q.settled(event.KindExclusive)
}

// once lets b run the key. The run completes, or it fails and a runs the key again.
func (q *queue) once(ctx context.Context, who int, done bool) {
	theirs, _, err := q.b.Claim(q.T.Context(), "k", lockcore.Claim{Terms: long})
	if err != nil {
		q.T.Fatal(err)
	}
	q.line(ctx, who, q.claim)
	time.Sleep(20 * time.Millisecond)
	q.keep(theirs, -1, q.hold)
	runs := 1
	if done {
		_ = theirs.Complete(q.T.Context(), []byte("done"), time.Hour)
	} else {
		_ = theirs.Release(q.T.Context())
		runs = 2
	}
	q.calls.Wait()
	q.took = time.Since(q.start)
	if q.granted > runs || who >= 0 && q.granted+q.records < inLine { // one call may have been canceled
		q.T.Errorf("%d runs, %d records", q.granted, q.records)
	}
	q.settled(event.KindOnce)
}

var lives = map[string]func(*queue, context.Context, int){
	"exclusive":                 (*queue).exclusive,
	"once, done by the other":   func(q *queue, ctx context.Context, who int) { q.once(ctx, who, true) },
	"once, failed by the other": func(q *queue, ctx context.Context, who int) { q.once(ctx, who, false) },
}

// The ctx of one call, or of all calls of a process, ends before, while or after anything is sent
// or received. The other calls are served at once and in order, nothing stays in Redis, and it
// needs only a few more commands.
// Shows: I6
func TestCancelAnywhere(t *testing.T) {
	testlevel.InMemory(t)
	steps := 0
	afters := []time.Duration{0, oneWay, oneWay * 3 / 2}
	for name, live := range lives {
		for _, who := range []int{0, 1, 2, everybody} {
			for _, after := range testlevel.Pick(t, afters[1:2], afters, afters) {
				var took []time.Duration // the last one is that of a run without a cancellation
				var sent []int
				for n := 1; ; n += stride(t) {
					struck := false
					t.Run(fmt.Sprintf("%s/call %d/packet %d, %v", name, who, n, after), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							q := newQueue(t)
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							q.cancelAt(n, after, cancel)
							live(q, ctx, who)
							struck = q.reached(n)
							took, sent = append(took, q.took), append(sent, len(q.sent.Commands()))
						})
					})
					if !struck {
						break
					}
				}
				last := len(took) - 1
				steps += last
				if d := slices.Max(took) - took[last]; d > 10*time.Millisecond {
					t.Errorf("%s, call %d: the cancellation delayed the others by %v: %v", name, who, d, took)
				}
				if n := slices.Max(sent) - sent[last]; n > 3 {
					t.Errorf("%s, call %d: the cancellation needed %d more commands: %v", name, who, n, sent)
				}
			}
		}
	}
	if steps < 400/stride(t) {
		t.Errorf("only %d steps with a cancellation", steps)
	}
}

// A call is canceled right before, during or after the hand-off to it. It runs, or it passes the
// key on.
// Shows: I6
func TestCancelAtHandOff(t *testing.T) {
	testlevel.InMemory(t)
	for name, ends := range map[string]func(cancel func(), le *lockcore.Lease){
		"before": func(cancel func(), le *lockcore.Lease) { cancel(); _ = le.Release(context.Background()) },
		"after":  func(cancel func(), le *lockcore.Lease) { _ = le.Release(context.Background()); cancel() },
		"beside": func(cancel func(), le *lockcore.Lease) { go cancel(); _ = le.Release(context.Background()) },
	} {
		for _, held := range []time.Duration{0, 2 * hold} { // the key is handed off, or released and requested again
			t.Run(fmt.Sprintf("%s, after %v", name, held), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(t)
					for range 50 {
						le := q.Must(q.a.Acquire(t.Context(), "k", noWait))
						q.begins(le, everybody)
						q.ends()
						ctx, cancel := context.WithCancel(t.Context())
						for i, ctx := range []context.Context{ctx, ctx, t.Context()} {
							q.calls.Go(func() {
								if err := q.acquire(ctx, i); err != nil && ctx.Err() == nil {
									t.Errorf("call %d: %v", i, err)
								}
							})
							synctest.Wait() // until the call waits
						}
						time.Sleep(held)
						start := time.Now()
						q.sent.Reset()
						ends(cancel, le)
						q.calls.Wait()
						if d := time.Since(start); d > 3*hold {
							t.Errorf("three holds took %v", d)
						}
						if n := len(q.sent.Commands()); n > 4 {
							t.Errorf("%d commands", n)
						}
						q.settled(event.KindExclusive)
						q.served = nil
					}
				})
			})
		}
	}
}
