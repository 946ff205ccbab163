package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// few lets three calls of a process wait.
var few = lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: 3}

// crowd has calls for "k" in a bubble.
type crowd struct {
	t    *testing.T
	l    *lockcore.Locker
	got  chan *lockcore.Lease // calls that waited get the key, in order
	done atomic.Int64         // calls that have returned
}

func newCrowd(t *testing.T, l *lockcore.Locker) *crowd {
	t.Helper()
	return &crowd{t: t, l: l, got: make(chan *lockcore.Lease)}
}

// call makes n calls one after another, each when the previous one waits or has returned. Errors of
// calls that wait are set later.
func (c *crowd) call(ctx context.Context, n int, terms lockcore.Terms) []error {
	errs := make([]error, n)
	for i := range n {
		go func() { // ends with the bubble
			le, err := c.l.Acquire(ctx, "k", terms)
			errs[i] = err
			c.done.Add(1)
			if err == nil {
				c.got <- le
			}
		}()
		synctest.Wait()
	}
	return errs
}

// next returns the lease of the next call that gets the key.
func (c *crowd) next() *lockcore.Lease {
	c.t.Helper()
	select {
	case le := <-c.got:
		return le
	case <-time.After(time.Hour):
		c.t.Fatal("no call gets the key")
		return nil
	}
}

// serve releases le and then the leases of the next n calls that wait.
func (c *crowd) serve(le *lockcore.Lease, n int) {
	c.t.Helper()
	ok(c.t, le.Release(c.t.Context()))
	for range n {
		ok(c.t, c.next().Release(c.t.Context()))
	}
}

// wantRefused checks that err is a refusal by MaxWaiting while that many calls wait.
func wantRefused(t *testing.T, err error, waiting int) {
	t.Helper()
	b, is := errors.AsType[*lockcore.BusyError](err)
	if !is || b.Waiting != waiting || !strings.Contains(b.Error(), "calls of this process wait for it (MaxWaiting)") {
		t.Errorf("got %+v, want a refusal while %d calls wait", err, waiting)
	}
}

// onBoth runs test with a Locker in memory and one on Redis. It sends no commands in between.
func onBoth(t *testing.T, test func(t *testing.T, l *lockcore.Locker)) {
	t.Helper()
	inTime(t, "memory", func(t *testing.T) { test(t, memoryLocker(t, lockcore.MemoryOptions{})) })
	inTime(t, "redis", func(t *testing.T) {
		l, _, _ := newWorld(t).Locker(lockcore.Options{})
		test(t, l)
	})
}

// While this process has the key, exactly MaxWaiting calls wait and the others fail at once. A
// waiter that gets the key or gives up makes its place free. Holds do not count.
// Shows: W3
func TestMaxWaiting(t *testing.T) {
	onBoth(t, func(t *testing.T, l *lockcore.Locker) {
		le, err := l.Acquire(t.Context(), "k", few)
		ok(t, err)
		time.Sleep(time.Second)
		c := newCrowd(t, l)
		errs := c.call(t.Context(), 5, few)
		if c.done.Load() != 2 {
			t.Fatalf("%d of 5 calls have returned, want 2", c.done.Load())
		}
		for _, err := range errs[3:] {
			wantRefused(t, err, 3)
			b, _ := errors.AsType[*lockcore.BusyError](err)
			if b.Waited != 0 || b.Queue != 3 || !b.Local || b.HeldFor != time.Second || !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("the busy error is %+v", b)
			}
		}
		if b, _ := errors.AsType[*lockcore.BusyError](c.call(t.Context(), 1, noWait)[0]); b == nil || b.Waiting != 0 {
			t.Errorf("NoWait: %+v, want a BusyError that does not name MaxWaiting", b)
		}

		ok(t, le.Release(t.Context())) // one of three gets the key
		le = c.next()
		ctx, giveUp := context.WithCancel(t.Context())
		wantRefused(t, append(c.call(ctx, 1, few), c.call(t.Context(), 1, few)...)[1], 3)
		giveUp()
		synctest.Wait()
		wantRefused(t, c.call(t.Context(), 2, few)[1], 3)
		c.serve(le, 3)
	})
}

// Each call is checked against its own MaxWaiting. A call that already waits is never refused
// because of it. Zero means the value of the Locker.
func TestMaxWaitingOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{Terms: lockcore.Terms{MaxWaiting: 1}})
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		c := newCrowd(t, l)
		wantRefused(t, c.call(t.Context(), 2, forever)[1], 1)
		wantRefused(t, c.call(t.Context(), 3, few)[2], 3)
		c.call(t.Context(), 2, lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: 1_000_000})
		wantRefused(t, c.call(t.Context(), 1, few)[0], 5)
		time.Sleep(time.Hour)
		if n := c.done.Load(); n != 3 {
			t.Errorf("%d calls have returned, want 3", n)
		}
		c.serve(le, 5)
	})
}

// While another process has the key, the leader that waits for it counts too. Calls beyond the
// bound send no command.
// Shows: W3
func TestMaxWaitingOtherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(other.Acquire(lockcore.WithTask(t.Context(), "the holder"), "k", lockcore.Terms{Lease: time.Hour}))
		c := newCrowd(t, l)
		c.call(t.Context(), 3, few)
		time.Sleep(time.Second)
		if n := c.done.Load(); n != 0 {
			t.Fatalf("%d of 3 calls have returned, want 0", n)
		}
		count.Reset()
		for _, err := range c.call(t.Context(), 100, few) {
			wantRefused(t, err, 3)
			b, _ := errors.AsType[*lockcore.BusyError](err)
			if b.Holder.Task != "the holder" || b.Waited != 0 || b.Local || b.Queue != 3 { // two here, and this process in Redis
				t.Errorf("the busy error is %+v", b)
			}
		}
		if sent := count.Commands(); len(sent) != 0 {
			t.Errorf("refusals sent %v", sent)
		}
		c.serve(le, 3)
	})
}

// While the holder is not known, a call beyond the bound waits for the reply to the leader. Then
// the calls are checked in order of arrival. If the leader gets the key, its place is free.
// Shows: W3
func TestMaxWaitingBeforeReply(t *testing.T) {
	for name, held := range map[string]bool{"granted": false, "busy": true} {
		inTime(t, name, func(t *testing.T) {
			w := newWorld(t)
			l, faults, _ := w.Locker(lockcore.Options{})
			other, _, _ := w.Locker(lockcore.Options{})
			w.Warm(l)
			waiting := 4
			var le *lockcore.Lease
			if held {
				le, waiting = w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour})), 3
			}
			faults.Delay(10 * time.Millisecond) // a round trip takes 20 ms
			c := newCrowd(t, l)
			errs := c.call(t.Context(), 10, few)
			if n := c.done.Load(); n != 0 {
				t.Fatalf("%d calls have returned before the reply", n)
			}
			time.Sleep(30 * time.Millisecond)
			synctest.Wait()
			if n := c.done.Load(); n != 7 { // with the leader, if it was granted the key
				t.Errorf("after the reply %d of 10 calls have returned, want 7", n)
			}
			for _, err := range errs[waiting:] {
				wantRefused(t, err, 3)
				if b, _ := errors.AsType[*lockcore.BusyError](err); b.Waited != 20*time.Millisecond {
					t.Errorf("refused after %v, want 20ms", b.Waited)
				}
			}
			if !held {
				le = c.next()
			}
			c.serve(le, 3)
		})
	}
}

// Waiters give up before the reply. Their places go to the calls that came first.
func TestMaxWaitingPlacesBeforeReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		le := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour}))
		faults.Delay(10 * time.Millisecond)
		c := newCrowd(t, l)
		ctx, giveUp := context.WithCancel(t.Context())
		c.call(t.Context(), 1, few)
		c.call(ctx, 2, few)
		early := c.call(t.Context(), 2, few)
		giveUp()
		late := c.call(t.Context(), 2, few)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		wantRefused(t, late[0], 3)
		wantRefused(t, late[1], 3)
		ok(t, errors.Join(early...))
		c.serve(le, 3)
	})
}

// The leader gives up. Its grant goes to a call beyond the bound, and the next call waits.
func TestMaxWaitingLeaderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		faults.Delay(10 * time.Millisecond)
		c := newCrowd(t, l)
		ctx, giveUp := context.WithCancel(t.Context())
		one := lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: 1}
		c.call(ctx, 1, one)
		errs := c.call(t.Context(), 3, one)
		giveUp()
		le := c.next()
		synctest.Wait()
		wantRefused(t, errs[2], 1)
		wantRefused(t, c.call(t.Context(), 1, one)[0], 1)
		c.serve(le, 1)
	})
}

// Redis does not reply. A call beyond the bound fails like a call with NoWait, or earlier, when its
// own Wait has passed.
func TestMaxWaitingWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		faults.Silence()
		c := newCrowd(t, l)
		start := time.Now()
		c.call(t.Context(), 3, lockcore.Terms{Wait: 10 * time.Second, MaxWaiting: 3})
		var calls sync.WaitGroup
		for _, wait := range []time.Duration{time.Millisecond, lockcore.Forever} {
			calls.Go(func() {
				_, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait, MaxWaiting: 3})
				if d := time.Since(start); !errors.Is(err, lockcore.ErrUnavailable) || d > 5*time.Second {
					t.Errorf("Wait %v: %v after %v, want ErrUnavailable", wait, err, d)
				}
			})
		}
		calls.Wait()
		if n := c.done.Load(); n != 0 {
			t.Errorf("%d of the waiters have returned, want 0", n)
		}
		time.Sleep(20 * time.Second)
	})
}

// MaxWaiting bounds the waiters of a once key too. Waiters get the record; refused calls do not.
func TestMaxWaitingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{})
		ok(t, err)
		var records, refused atomic.Int64
		claim := func(n int) {
			for range n {
				go func() { // ends with the bubble
					_, rec, err := l.Claim(t.Context(), "k", lockcore.Claim{Terms: few})
					if err != nil {
						wantRefused(t, err, 3)
						refused.Add(1)
					} else if rec != nil && string(rec.Data) == "done" {
						records.Add(1)
					}
				}()
			}
		}
		claim(10)
		synctest.Wait()
		ok(t, le.Complete(t.Context(), []byte("done"), time.Hour))
		synctest.Wait()
		if records.Load() != 3 || refused.Load() != 7 {
			t.Errorf("%d of 10 calls got the record and %d were refused, want 3 and 7", records.Load(), refused.Load())
		}

		faults.Delay(10 * time.Millisecond)
		claim(10) // the reply has a record for all
		time.Sleep(time.Second)
		if records.Load() != 13 || refused.Load() != 7 {
			t.Errorf("of 10 calls for a done key %d got the record", records.Load()-3)
		}
	})
}

// Calls with another fingerprint do not count as waiters.
func TestMaxWaitingMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		faults.Delay(10 * time.Millisecond)
		errs := make([]error, 3)
		for i, print := range []string{"a", "b", "a"} {
			go func() { // ends with the bubble
				le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{Terms: lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: 1}, Fingerprint: []byte(print)})
				errs[i] = err
				if le != nil {
					time.Sleep(time.Second)
					_ = le.Release(t.Context())
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if errs[0] != nil || !errors.Is(errs[1], lockcore.ErrMismatch) || errs[2] != nil {
			t.Errorf("got %v, want a mismatch for the second", errs)
		}
	})
}

// Nested calls do not count and are not refused. A nested call whose hold has ended competes for
// the key, and is checked then.
func TestMaxWaitingNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{Terms: lockcore.Terms{MaxWaiting: 1}})
		outer, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		inner, err := l.Acquire(outer.Context(), "k", noWait)
		ok(t, err)
		nested := newCrowd(t, l)
		nested.call(context.WithoutCancel(outer.Context()), 3, forever)
		c := newCrowd(t, l)
		wantRefused(t, c.call(t.Context(), 2, forever)[1], 1)
		if n := nested.done.Load(); n != 0 {
			t.Fatalf("%d nested calls have returned", n)
		}
		ok(t, inner.Release(t.Context()))
		inner = nested.next()
		ok(t, outer.Release(t.Context())) // the other nested calls compete, behind a call that waits
		synctest.Wait()
		if n := nested.done.Load(); n != 3 {
			t.Errorf("%d nested calls have returned, want one that ran and two that were refused", n)
		}
		c.serve(inner, 1)
	})
}

// A refusal by MaxWaiting emits Refused and not Waiting.
func TestMaxWaitingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e := newWorld(t), newCallEvents()
		l, faults, _ := w.Locker(lockcore.Options{Observer: e})
		other, _, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		le := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Lease: time.Hour}))
		faults.Delay(10 * time.Millisecond)
		c := newCrowd(t, l)
		for i := range 6 {
			c.call(e.call(t.Context(), i), 1, few)
		}
		time.Sleep(time.Second)
		c.call(e.call(t.Context(), 6), 1, few)
		early := event.Wait{Waited: 20 * time.Millisecond, Contended: true, Queue: 2}
		for i, want := range map[int]event.Wait{3: early, 4: early, 5: early, 6: {Contended: true, Queue: 3}} { // the queue of a later refusal contains this process in Redis
			if r, _ := e.until(t, i, event.Refused{}).(event.Refused); r.Wait != want || len(e.types(i)) != 1 {
				t.Errorf("call %d: %v with %+v, want Refused with %+v", i, e.types(i), r.Wait, want)
			}
		}
		c.serve(le, 3)
		for i := range 3 {
			if g, _ := e.until(t, i, event.Granted{}).(event.Granted); g.Queue > 3 || e.types(i)[0] != "Waiting" {
				t.Errorf("call %d: %v with %+v", i, e.types(i), g.Wait)
			}
		}
	})
}

// Calls race for the last places, over hand-offs and batches. No call is refused while a place is
// free, and never do more calls wait than there are places.
// Shows: W3
func TestMaxWaitingRace(t *testing.T) {
	const places = 5
	o := lockcore.Options{Observer: queueBound(t, places), Terms: lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: places}}
	raceForPlaces(t, places, memoryLocker(t, lockcore.MemoryOptions{Terms: o.Terms, Observer: o.Observer}))
}

// TestMaxWaitingRaceReal is TestMaxWaitingRace with two Lockers on a real server.
func TestMaxWaitingRaceReal(t *testing.T) {
	testlevel.Full(t)
	const places = 5
	w, o := realWorld(t), lockcore.Options{Terms: lockcore.Terms{Wait: lockcore.Forever, MaxWaiting: places}}
	a, _, _ := w.Locker(o)
	b, _, _ := w.Locker(o)
	raceForPlaces(t, places, a, b)
}

// raceForPlaces runs many goroutines for each Locker, which acquire one key again and again.
func raceForPlaces(t *testing.T, places int, lockers ...*lockcore.Locker) {
	t.Helper()
	const callers, rounds = 24, 100
	var runs, refused atomic.Int64
	var calls sync.WaitGroup
	for i := range callers * len(lockers) {
		calls.Go(func() {
			for range rounds {
				le, err := lockers[i%len(lockers)].Acquire(t.Context(), "k", lockcore.Terms{})
				if err != nil {
					wantRefused(t, err, places)
					refused.Add(1)
					time.Sleep(50 * time.Microsecond)
					continue
				}
				runs.Add(1)
				time.Sleep(10 * time.Microsecond)
				if err := le.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if runs.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d runs and %d refusals", runs.Load(), refused.Load())
	}
}

// queueBound is an Observer that fails the test if a call sees a longer local queue.
func queueBound(t *testing.T, most int) event.Observer {
	t.Helper()
	return &panicky{on: func(e event.Event) bool {
		var w event.Wait
		switch e := e.(type) {
		case event.Granted:
			w = e.Wait
		case event.Refused:
			w = e.Wait
		case event.Waiting:
			w.Queue = e.Queue
		}
		if w.Queue > most {
			t.Errorf("%T with a queue of %d, want at most %d", e, w.Queue, most)
		}
		return false
	}}
}

// A lease is lost. Its first waiter becomes the leader, and still counts.
func TestMaxWaitingLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", few))
		c := newCrowd(t, l)
		c.call(t.Context(), 3, few)
		other := w.Locker(lockcore.Options{})
		locktest.Lose(le.Context()) // the first waiter becomes the leader; the lease is still in Redis
		synctest.Wait()
		wantRefused(t, c.call(t.Context(), 1, few)[0], 3)
		time.Sleep(time.Minute)
		next := c.next()
		wantRefused(t, c.call(t.Context(), 2, few)[1], 3)
		c.serve(next, 3)
		_ = w.Must(other.Acquire(t.Context(), "k", noWait)).Release(t.Context())
	})
}
