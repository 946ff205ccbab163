package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// doctor fails for each problem that doctor.Check finds.
func (t *trial) doctor() {
	var findings []doctor.Finding
	for _, rdb := range t.servers {
		found, err := doctor.Check(t.ctx, rdb, t.given)
		if err != nil {
			t.Fatal(err)
		}
		findings = append(findings, found...)
	}
	ofTheMoment := []doctor.Code{"latency", "clock-drift"}
	for _, f := range findings {
		if f.Severity == doctor.SeverityProblem && !slices.Contains(ofTheMoment, f.Code) {
			t.Error(f)
		} else {
			t.Log(f)
		}
	}
}

// contention makes four Lockers with four calls each compete for one key. It takes longer if holds
// are slow.
func (t *trial) contention() {
	const lockers, callers = 4, 4
	during := 5 * time.Second
	if t.short {
		during = time.Second
	}
	o, key := &oracle{t: t, holds: make([]int, lockers+1)}, t.key("contended")
	var all [lockers]*lockcore.Locker
	for i := range all {
		all[i] = t.locker()
	}
	ctx, cancel := context.WithTimeout(t.ctx, 10*during)
	defer cancel()
	begin := time.Now()
	var wg sync.WaitGroup
	for i, locks := range all {
		for range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					o.hold(ctx, locks, i, key, lockcore.Forever)
					if time.Since(begin) > during && o.enough() {
						cancel()
					}
				}
			})
		}
	}
	intruder := t.locker() // sends requests while others have the key; the waiting calls seldom do
	wg.Go(func() {
		for ctx.Err() == nil {
			o.hold(ctx, intruder, lockers, key, lockcore.NoWait)
			time.Sleep(time.Millisecond)
		}
	})
	wg.Wait()
	o.judge()
}

// oracle watches the holds without the lock. All Lockers are in this process, so it needs no Redis.
type oracle struct {
	t *trial

	mu                    sync.Mutex
	inside                *lockcore.Lease
	token                 int64 // the greatest so far
	holds                 []int // by Locker; the last Locker does not wait
	lost, overlaps, lower int
	err                   error
}

func (o *oracle) hold(ctx context.Context, locks *lockcore.Locker, i int, key string, wait time.Duration) {
	le, err := locks.Acquire(ctx, key, lockcore.Terms{Wait: wait, Lease: shortLease})
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		end, _ := ctx.Deadline() // a connection may report its deadline before ctx does
		if ctx.Err() == nil && time.Now().Before(end) && !(wait == lockcore.NoWait && errors.Is(err, lockcore.ErrBusy)) {
			o.err = err
		}
		return
	}
	o.enter(le, i)
	select { // work
	case <-le.Context().Done():
	case <-time.After(time.Millisecond / 2):
	}
	o.leave(le)
	if err := le.Release(context.WithoutCancel(ctx)); err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lost++
	}
}

func (o *oracle) enter(le *lockcore.Lease, i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Check the other lease first: then both leases were valid when it was checked. A lease that is
	// lost already does not compete.
	theirs := o.inside != nil && o.inside.Context().Err() == nil
	if le.Context().Err() != nil {
		return
	}
	if theirs {
		o.overlaps++
	}
	if le.Token() <= o.token {
		o.lower++
	}
	o.inside, o.token = le, max(o.token, le.Token())
	o.holds[i]++
}

func (o *oracle) leave(le *lockcore.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inside == le {
		o.inside = nil
	}
}

// waited returns the holds of each Locker that waits, and their sum.
func (o *oracle) waited() (holds []int, all int) {
	holds = o.holds[:len(o.holds)-1]
	for _, n := range holds {
		all += n
	}
	return holds, all
}

// enough reports whether there are twice as many holds as judge needs.
func (o *oracle) enough() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	holds, all := o.waited()
	return all >= 10*len(holds)
}

func (o *oracle) judge() {
	waited, all := o.waited()
	o.t.Logf("%d holds, by Locker %v, %d leases lost", all, o.holds, o.lost)
	if o.overlaps > 0 {
		o.t.Errorf("%d times a second holder was inside", o.overlaps)
	}
	if o.lower > 0 {
		o.t.Errorf("%d times a token was not greater than the one before", o.lower)
	}
	if o.err != nil {
		o.t.Errorf("acquire: %v", o.err)
	}
	if all < 5*len(waited) || o.lost*4 > all {
		o.t.Fatalf("inconclusive: %d holds, %d of them lost, prove nothing", all, o.lost)
	}
	if least := slices.Min(waited); least*len(waited)*5 < all {
		o.t.Errorf("a Locker got %d of %d holds, less than a fifth of its share", least, all)
	}
}

// tokens deletes the data of a key between holds, for both kinds of key.
func (t *trial) tokens() {
	a, b, key := t.locker(), t.locker(), t.key("tokens")
	last := int64(0)
	hold := func(le *lockcore.Lease, after string) {
		if le.Token() <= last {
			t.Errorf("after %s the token is %d, and was %d", after, le.Token(), last)
		}
		last = le.Token()
		t.release(le)
	}
	forget := func() {
		for _, keys := range t.stored(key) {
			if err := t.forget(t.ctx, keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	hold(t.acquire(a, key, atOnce), "nothing")
	hold(t.acquire(b, key, atOnce), "a release")
	forget()
	hold(t.acquire(b, key, atOnce), "the loss of the data")
	if t.masters != nil {
		return
	}
	last = 0 // the other kind has separate tokens
	hold(t.claim(a, key, lockcore.Claim{}), "nothing")
	forget()
	hold(t.claim(b, key, lockcore.Claim{}), "the loss of the data")
	if err := t.clear(b, event.KindOnce, key); err != nil {
		t.Error(err)
	}
	hold(t.claim(a, key, lockcore.Claim{}), "Clear")
}

// reentry counts the commands for a key, if the client can be copied.
func (t *trial) reentry() {
	other, key := t.locker(), t.key("nested")
	locks, faults := t.network()
	var sent atomic.Int64
	if faults == nil {
		t.Log("commands are not counted: the client cannot be copied")
		locks = t.locker()
	} else {
		faults.CutRequest(func(r faulty.Request) bool { // never hits
			if r.About(key) {
				sent.Add(1)
			}
			return false
		})
	}
	outer := t.acquire(locks, key, atOnce)
	before := sent.Load()
	if faults != nil && before == 0 {
		t.Error("inconclusive: the acquire was not seen")
	}
	for range 100 {
		inner, err := locks.Acquire(outer.Context(), key, atOnce)
		if err != nil {
			t.Fatalf("nested: %v", err)
		}
		if inner.Token() != outer.Token() {
			t.Errorf("nested: the token is %d, that of the hold %d", inner.Token(), outer.Token())
		}
		t.release(inner)
	}
	if n := sent.Load() - before; n > 0 {
		t.Errorf("100 nested calls sent %d commands", n)
	}
	t.busy(other, key)
	t.release(outer)
	t.release(t.acquire(other, key, atOnce))
}

// order makes calls wait behind a hold of their own process, one after the other.
func (t *trial) order() {
	const calls = 8
	locks, key := t.locker(), t.key("order")
	held := t.acquire(locks, key, atOnce)
	var mu sync.Mutex
	var served []int
	var errs []error
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range calls {
		wg.Go(func() {
			le, err := locks.Acquire(t.ctx, key, lockcore.Terms{Wait: lockcore.Forever, Lease: longLease})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				served = append(served, i)
				err = le.Release(t.ctx)
			}
			errs = append(errs, err)
		})
		in := func() bool { return t.busy(locks, key).Queue > i }
		if !t.until(checkTime/4, in) {
			t.Errorf("call %d does not enter the wait queue", i)
			break
		}
	}
	t.release(held)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if !slices.IsSorted(served) || len(served) != calls {
		t.Errorf("served in the order %v", served)
	}
}

// wakes releases a key as soon as another process is in the remote wait queue. Without a message,
// that process sends its next request after more than two seconds.
func (t *trial) wakes() {
	const rounds, soon = 3, time.Second
	a, b, key := t.locker(), t.locker(), t.key("wakes")
	var took []time.Duration
	quick := 0
	for range rounds {
		held := t.acquire(a, key, lockcore.Terms{Lease: longLease})
		p := t.wait(b, key, lockcore.Terms{Wait: lockcore.Forever, Lease: longLease}, held)
		if !t.inLine(a, key) {
			t.Fatal("the waiter does not enter the wait queue in Redis: " + t.channels())
		}
		t.hasTTL(key)
		begin := time.Now()
		t.release(held)
		next := p.lease(t)
		took = append(took, p.at.Sub(begin))
		if took[len(took)-1] < soon {
			quick++
		}
		t.release(next)
	}
	t.Logf("the waiter had the key after %v", took)
	if quick*2 < rounds { // one round may be late on a busy machine
		t.Errorf("the waiter got the key only by its next request, after %v: %s", took, t.channels())
	}
}

func (t *trial) channels() string {
	prefix := t.o.Prefix
	if prefix == "" {
		prefix = "holdfast"
	}
	return fmt.Sprintf("messages do not arrive; may the user PUBLISH and SUBSCRIBE on the channels %s:2:wake:*?", prefix)
}
