package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// permits makes four Lockers compete for the permits of a key, by weight, and for the key alone.
func (t *trial) permits() {
	const lockers, limit = 4, 3
	during := 3 * time.Second
	if t.short {
		during = time.Second
	}
	key := t.key("permits")
	ctx, cancel := context.WithTimeout(t.ctx, 4*during)
	defer cancel()
	w := &weighing{limit: limit}
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range lockers {
		locks := t.locker()
		for _, share := range []lockcore.Limit{{N: limit}, {N: limit, Weight: 1 + i%limit}, {}} {
			call := testcall.Call{Limit: share, Terms: lockcore.Terms{Wait: lockcore.Forever, Lease: shortLease}}
			wg.Go(func() {
				for ctx.Err() == nil && (time.Since(begin) < during || !w.enough()) {
					le, err := call.Acquire(ctx, locks, key)
					if err != nil {
						w.fail(ctx, err)
						return
					}
					w.enter(le, share)
					select { // work
					case <-le.Context().Done():
					case <-time.After(time.Millisecond):
					}
					w.leave(le)
					_ = le.Release(context.WithoutCancel(ctx))
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d shares and %d holds alone, at most weight %d of %d", w.shares, w.alone, w.most, limit)
	switch {
	case w.err != nil:
		t.Errorf("acquire: %v", w.err)
	case w.overlaps > 0:
		t.Errorf("%d times the weights exceeded the limit, or a share was beside a hold of the key alone", w.overlaps)
	case !w.enough():
		t.Fatalf("inconclusive: %d shares and %d holds alone", w.shares, w.alone)
	}
}

// weighing sums the weights held at once, from outside, like oracle.
type weighing struct {
	limit int

	mu                            sync.Mutex
	inside                        map[*lockcore.Lease]int
	shares, alone, most, overlaps int
	err                           error
}

func (w *weighing) fail(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end, _ := ctx.Deadline(); ctx.Err() == nil && time.Now().Before(end) {
		w.err = err
	}
}

// enter counts a hold whose lease is valid. A hold of the key alone weighs as much as the limit.
func (w *weighing) enter(le *lockcore.Lease, share lockcore.Limit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	weight := max(share.Weight, 1)
	if share.N == 0 {
		weight = w.limit
	}
	sum := weight
	for other, n := range w.inside { // the other leases first, see oracle.enter
		if other.Context().Err() == nil {
			sum += n
		}
	}
	if le.Context().Err() != nil {
		return
	}
	if sum > w.limit {
		w.overlaps++
	}
	if w.most = max(w.most, sum); share.N == 0 {
		w.alone++
	} else {
		w.shares++
	}
	if w.inside == nil {
		w.inside = map[*lockcore.Lease]int{}
	}
	w.inside[le] = weight
}

func (w *weighing) leave(le *lockcore.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inside, le)
}

func (w *weighing) enough() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shares >= 20 && w.alone >= 5 && w.most >= 2
}

// readers checks that a writer waits for the readers that have a key, and that a later reader waits
// for the writer.
func (t *trial) readers() {
	key, a, b := t.key("read"), t.locker(), t.locker()
	read := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Lease: longLease, Wait: lockcore.NoWait}}
	first := t.call(a, key, read)
	second := t.call(b, key, read)
	if first.Token() != second.Token() {
		t.Errorf("two readers have the tokens %d and %d", first.Token(), second.Token())
	}
	if t.busy(b, key); t.Failed() {
		return
	}
	write := lockcore.Terms{Lease: longLease, Wait: lockcore.Forever}
	granted := make(chan *lockcore.Lease, 1)
	go func() {
		if le, err := b.Acquire(t.ctx, key, write); err == nil {
			granted <- le
		}
		close(granted)
	}()
	for t.state(a, event.KindExclusive, key).Queue == 0 {
		if t.ctx.Err() != nil {
			t.Fatal("the writer does not wait")
		}
		time.Sleep(pollEvery)
	}
	// This share has a limit: a reader could join the share of the first reader for 5 ms.
	if le, err := a.AcquireShare(t.ctx, key, lockcore.Limit{N: 1_000_000}, lockcore.Terms{Lease: longLease, Wait: lockcore.NoWait}); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("a later share overtakes the writer: %v", err)
		if err == nil {
			t.lease(le)
		}
	}
	t.release(first)
	t.release(second)
	le := <-granted
	if le == nil {
		t.Fatal("the writer does not get the key")
	}
	if t.lease(le); le.Token() <= first.Token() {
		t.Errorf("the token of the writer is %d, and that of the readers is %d", le.Token(), first.Token())
	}
}

// ticket transfers a hold, and checks that only one process adopts it.
func (t *trial) ticket() {
	key, a, b := t.key("ticket"), t.locker(), t.locker()
	given := t.acquire(a, key, atOnce)
	ticket, err := given.Ticket(t.ctx, longLease)
	if err != nil {
		t.Fatalf("ticket: %v", err)
	}
	if t.busy(b, key); t.Failed() {
		return
	}
	le, err := b.Adopt(t.ctx, ticket, lockcore.Terms{Lease: longLease})
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if t.lease(le); le.Token() <= given.Token() {
		t.Errorf("the token of the adopted hold is %d, and that of the hold transferred was %d", le.Token(), given.Token())
	}
	if again, err := a.Adopt(t.ctx, ticket, lockcore.Terms{}); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("a second process adopts the hold: %v", err)
		if err == nil {
			t.lease(again)
		}
	}
	t.release(le)
}
