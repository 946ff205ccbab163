package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

const (
	oneWay = time.Millisecond // from a process to Redis, and back
	tenure = 3 * time.Millisecond
	inLine = 4 // calls of one process
)

// queue is one life of a line: process b has the key, calls of process a stand in line for it, and the ctx of one of them ends.
type queue struct {
	*world
	a, b    *lockcore.Locker
	faults  *locktest.Faults
	sent    *redistest.Counter // by a
	calls   sync.WaitGroup
	packets int // of a, guarded by faults

	mu      sync.Mutex
	served  []int // calls of a, in order
	granted int   // leases of a and b
	token   int64 // the last one
	records int
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{world: newWorld(t)}
	for _, s := range lockcore.Scripts {
		if err := s.Load(t.Context(), q.rdb).Err(); err != nil {
			t.Fatal(err)
		}
	}
	q.a, q.faults, q.sent = q.locker(lockcore.Options{})
	q.b, _, _ = q.locker(lockcore.Options{})
	return q
}

// cancelAt calls cancel a while after the n-th packet, from 1, that a sends or is sent: on its way, as it arrives, or after it.
func (q *queue) cancelAt(n int, after time.Duration, cancel func()) {
	q.faults.DelayFunc(func() time.Duration {
		if q.packets++; q.packets == n {
			if after == 0 {
				cancel()
			} else {
				time.AfterFunc(after, cancel)
			}
		}
		return oneWay
	})
}

// reached says whether the n-th packet was sent.
func (q *queue) reached(n int) (ok bool) {
	q.faults.DelayFunc(nil) // happens after the last of them
	return q.packets >= n
}

// tenure notes a grant, that the tokens grow, and lets some time pass.
func (q *queue) tenure(le *lockcore.Lease, i int) {
	q.mu.Lock()
	if i >= 0 {
		q.served = append(q.served, i)
	}
	q.granted++
	if le.Token() <= q.token {
		q.t.Errorf("token %d after %d", le.Token(), q.token)
	}
	q.token = le.Token()
	q.mu.Unlock()
	if le.Abandoned() {
		q.t.Error("called abandoned for nothing")
	}
	time.Sleep(tenure)
}

// acquire is call i of a, and that of b if i < 0.
func (q *queue) acquire(ctx context.Context, i int) error {
	l := q.a
	if i < 0 {
		l = q.b
	}
	le, err := l.Acquire(ctx, "k", long)
	if err != nil {
		return err
	}
	q.tenure(le, i)
	if err := le.Release(ctx); err != nil {
		q.t.Errorf("release: %v", err)
	}
	return nil
}

// claim is call i of a, on a key that knows outcomes.
func (q *queue) claim(ctx context.Context, i int) error {
	le, rec, err := q.a.Claim(ctx, "k", lockcore.Claim{Terms: long, AtMostOnce: true})
	switch {
	case err != nil:
		return err
	case rec != nil:
		if string(rec.Data) != "done" {
			q.t.Errorf("call %d got the record %q", i, rec.Data)
		}
		q.mu.Lock()
		q.records++
		q.mu.Unlock()
		return nil
	}
	if le.Attempt() != 2 {
		q.t.Errorf("call %d is run %d", i, le.Attempt())
	}
	q.tenure(le, i)
	if err := le.Complete(ctx, []byte("done"), time.Hour); err != nil {
		q.t.Errorf("complete: %v", err)
	}
	return nil
}

// line lets the calls of a stand in line, one after the other; the ctx of who is ctx.
func (q *queue) line(who int, ctx context.Context, call func(context.Context, int) error) {
	for i := range inLine {
		q.calls.Go(func() {
			if i != who {
				if err := call(q.t.Context(), i); err != nil {
					q.t.Errorf("call %d: %v", i, err)
				}
				return
			}
			switch err := call(ctx, i); {
			case err == nil:
			case !errors.Is(err, lockcore.ErrNotRun) || !errors.Is(err, context.Canceled):
				q.t.Errorf("the canceled call: %v", err)
			case ctx.Err() == nil:
				q.t.Errorf("not canceled, and %v", err)
			}
			if ctx.Err() != nil {
				q.mu.Lock()
				defer q.mu.Unlock()
			}
		})
		time.Sleep(2 * time.Millisecond)
	}
}

// settled: a's calls were served by arrival, and the key is what it should be, without anybody in line or abandoned.
func (q *queue) settled(kind lockcore.Kind, want lockcore.State) {
	t := q.t
	if !slices.IsSorted(q.served) {
		t.Errorf("served in the order %v", q.served)
	}
	time.Sleep(20 * time.Millisecond) // what is undone in the background
	h, err := q.b.Inspect(t.Context(), kind, "k")
	if err != nil || h.State != want || h.Queue != 0 {
		t.Errorf("in the end: %+v, %v", h, err)
	}
	if kind == lockcore.KindExclusive {
		if err := q.acquire(t.Context(), -1); err != nil {
			t.Error(err)
		}
	}
}

// lives are the lives of a line. Each returns how long it took from the moment at which b let go.
var lives = map[string]func(q *queue, who int, ctx context.Context) time.Duration{
	"exclusive": func(q *queue, who int, ctx context.Context) time.Duration {
		theirs := q.must(q.b.Acquire(q.t.Context(), "k", long))
		q.line(who, ctx, q.acquire)
		q.calls.Go(func() {
			if err := q.acquire(q.t.Context(), -1); err != nil {
				q.t.Errorf("b: %v", err)
			}
		})
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		q.tenure(theirs, -1)
		_ = theirs.Release(q.t.Context())
		q.calls.Wait()
		d := time.Since(start)
		if q.granted < inLine+1 { // b twice
			q.t.Errorf("%d tenures", q.granted)
		}
		q.settled(lockcore.KindExclusive, lockcore.StateFree)
		return d
	},
	"once, done by the other": func(q *queue, who int, ctx context.Context) time.Duration {
		theirs, _, err := q.b.Claim(q.t.Context(), "k", lockcore.Claim{Terms: long})
		if err != nil {
			q.t.Fatal(err)
		}
		q.line(who, ctx, q.claim)
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		q.tenure(theirs, -1)
		_ = theirs.Complete(q.t.Context(), []byte("done"), time.Hour)
		q.calls.Wait()
		d := time.Since(start)
		if q.granted != 1 || q.records < inLine-1 {
			q.t.Errorf("%d runs, %d records", q.granted, q.records)
		}
		q.settled(lockcore.KindOnce, lockcore.StateDone)
		return d
	},
	"once, failed by the other": func(q *queue, who int, ctx context.Context) time.Duration {
		theirs, _, err := q.b.Claim(q.t.Context(), "k", lockcore.Claim{Terms: long})
		if err != nil {
			q.t.Fatal(err)
		}
		q.line(who, ctx, q.claim)
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		q.tenure(theirs, -1)
		_ = theirs.Release(q.t.Context())
		q.calls.Wait()
		d := time.Since(start)
		if q.granted != 2 || q.records < inLine-2 {
			q.t.Errorf("%d runs, %d records", q.granted, q.records)
		}
		q.settled(lockcore.KindOnce, lockcore.StateDone)
		return d
	},
}

// Wherever the ctx of a call ends, before, while or after anything is sent or answered, the others are served at once and in order,
// and it costs no more than a few commands.
func TestCancelAnywhere(t *testing.T) {
	steps := 0
	for name, live := range lives {
		for who := range inLine {
			for _, after := range []time.Duration{0, oneWay / 2, oneWay, oneWay * 3 / 2} {
				var took []time.Duration
				var commands []int
				for n := 1; ; n++ {
					struck := false
					t.Run(fmt.Sprintf("%s/call %d/packet %d, %v", name, who, n, after), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							q := newQueue(t)
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							q.cancelAt(n, after, cancel)
							took = append(took, live(q, who, ctx))
							struck = q.reached(n)
							c := 0
							for _, script := range []string{"acquire", "release", "rotate", "complete", "leave"} {
								c += q.sent.Count(script)
							}
							commands = append(commands, c)
						})
					})
					if !struck {
						break
					}
				}
				steps += len(took) - 1
				t.Logf("%s %d %v: %v %v", name, who, after, took, commands)
			}
		}
	}
	if steps < 100 {
		t.Errorf("canceled at %d steps only", steps)
	}
	t.Logf("%d steps", steps)
}
