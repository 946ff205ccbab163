package lockcore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Processes take turns, the calls of a process are served in order of arrival, and each release
// notifies one waiter only.
// Shows: W4
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, ca := w.Locker(lockcore.Options{})
		b, _, cb := w.Locker(lockcore.Options{})
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		first := w.Must(a.Acquire(t.Context(), "k", long))
		for i := range 20 {
			l := []*lockcore.Locker{a, b}[i%2]
			wg.Go(func() {
				le, err := l.Acquire(t.Context(), "k", long)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(50 * time.Millisecond)
				_ = le.Release(t.Context())
			})
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		ca.Reset()
		cb.Reset()
		start := time.Now()
		_ = first.Release(t.Context())
		wg.Wait()
		want := []int{1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14, 17, 16, 19, 18} // process a had the key, so b is first
		if !slices.Equal(order, want) {
			t.Errorf("served in the order %v", order)
		}
		if d := time.Since(start); d > 1010*time.Millisecond {
			t.Errorf("20 turns of 50 ms took %v", d)
		}
		if n := len(ca.Commands()) + len(cb.Commands()); n < 39 || n > 46 { // one to acquire, one to release and queue again
			t.Errorf("%d commands for 20 turns", n)
		}
	})
}

// A release notifies a subscribed waiter at once. If the notification is lost, the waiter gets the
// free key with its next request, within 2.5 s.
// Shows: B8
func TestWaitWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		got := make(chan time.Duration)
		wait := func() {
			start := time.Now()
			le, err := b.Acquire(t.Context(), "k", long)
			if err != nil {
				t.Error(err)
			}
			_ = le.Release(t.Context())
			got <- time.Since(start)
		}
		go wait()
		time.Sleep(5 * time.Second)
		released := time.Now()
		_ = le.Release(t.Context())
		<-got
		if d := time.Since(released); d > time.Millisecond {
			t.Errorf("the waiter got the key after %v", d)
		}
		le = w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		go wait()
		time.Sleep(1500 * time.Millisecond)
		faults.SilenceReplies()
		_ = le.Release(t.Context()) // the notification is lost
		time.Sleep(100 * time.Millisecond)
		faults.Heal()
		released = time.Now()
		<-got
		if d := time.Since(released); d > 2500*time.Millisecond {
			t.Errorf("after a lost notification the waiter got the key after %v", d)
		}
	})
}

// A holder dies. A waiter gets its key within the lease and 250 ms, without any notification.
func TestWaitForDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		dead := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(time.Minute)
		faults.Silence()
		start := time.Now()
		le := w.Must(b.Acquire(t.Context(), "k", long))
		if d := time.Since(start); d > 30*time.Second+250*time.Millisecond {
			t.Errorf("acquired after %v", d)
		}
		if !le.Abandoned() {
			t.Error("Abandoned is false")
		}
		_ = le.Release(t.Context())
		_ = dead.Release(t.Context())
	})
}

// The Wait of one call ends, and the ctx of another. Both get ErrBusy, the first with the holder,
// the second with the cause of its ctx. Both leave the queue.
// Shows: I6
func TestWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		a := w.Locker(lockcore.Options{})
		b := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(lockcore.WithTask(t.Context(), "job-1"), "k", lockcore.Terms{}))
		time.Sleep(3 * time.Second)
		start := time.Now()
		_, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second})
		var busy *lockcore.BusyError
		if !errors.As(err, &busy) || busy.Holder.Task != "job-1" || busy.HeldFor < 3*time.Second || busy.Waited != 10*time.Second {
			t.Errorf("%v: %+v", err, busy)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("waited %v", d)
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start = time.Now()
		_, err = b.Acquire(ctx, "k", long)
		if !errors.Is(err, lockcore.ErrBusy) || !errors.Is(err, stop) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("the canceled call: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("returned %v after the call", d)
		}
		synctest.Wait()
		if h, _ := a.Inspect(t.Context(), event.KindExclusive, "k"); h.Queue != 0 || h.State != lockcore.StateHeld {
			t.Errorf("after the calls: %+v", h)
		}
		_ = le.Release(t.Context())
	})
}

// A waiter gives up at the moment of its turn. The key goes to the next waiter.
// Shows: I6
func TestWaitPassesTurnOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, faults, _ := w.Locker(lockcore.Options{})
		c, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() { _, err := b.Acquire(ctx, "k", long); gaveUp <- err }()
		time.Sleep(time.Second)
		got := make(chan time.Time)
		go func() {
			le, err := c.Acquire(t.Context(), "k", long)
			if err != nil {
				t.Error(err)
			}
			got <- time.Now()
			_ = le.Release(t.Context())
		}()
		time.Sleep(200 * time.Millisecond)
		faults.Delay(100 * time.Millisecond) // b is notified of its turn, and gives up while its request is under way
		released := time.Now()
		_ = le.Release(t.Context())
		time.Sleep(50 * time.Millisecond)
		cancel()
		if err := <-gaveUp; err == nil {
			t.Error("a canceled call got the key")
		}
		if d := (<-got).Sub(released); d > time.Second {
			t.Errorf("the turn was passed on after %v", d)
		}
	})
}

// Notifications are forged or repeated. They grant nothing, and the number of requests that they
// cause is bounded.
// Shows: W11
func TestForgedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, count := w.Locker(lockcore.Options{})
		_ = w.Must(b.Acquire(t.Context(), "k", noWait)).Release(t.Context()) // shows the names of the scripts to the counter
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		refused := make(chan error)
		go func() { _, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second}); refused <- err }()
		time.Sleep(time.Second)
		queue := w.Memory.Redis
		members, err := queue.ZMembers("holdfast:2:x:{k}:q")
		if err != nil || len(members) != 1 {
			t.Fatal(members, err)
		}
		id := len(members[0]) - 26
		channel, request := "holdfast:2:wake:"+members[0][:id], members[0][id:]
		count.Reset()
		for range 5000 {
			w.Redis.Publish(t.Context(), channel, "w"+request)
			time.Sleep(time.Millisecond)
		}
		if n := count.Count("acquire"); n == 0 || n > 60 {
			t.Errorf("5000 forged notifications caused %d requests", n)
		}
		for _, m := range []string{"", "w", "v", "x", strings.Repeat("w", 1000), "v" + request} {
			w.Redis.Publish(t.Context(), channel, m)
		}
		if err := <-refused; !errors.Is(err, lockcore.ErrBusy) {
			t.Error(err)
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// One subscription of a process serves all keys. It ends a minute after its last use.
// Shows: C1
func TestSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, count := w.Locker(lockcore.Options{})
		var wg sync.WaitGroup
		for _, key := range []string{"x", "y", "z"} {
			le := w.Must(a.Acquire(t.Context(), key, lockcore.Terms{}))
			wg.Go(func() {
				le, err := b.Acquire(t.Context(), key, long)
				if err != nil {
					t.Error(err)
				}
				_ = le.Release(t.Context())
			})
			time.Sleep(time.Second)
			if n := len(w.Memory.Redis.PubSubChannels("*b*")); n > 2 {
				t.Errorf("%d channels", n)
			}
			_ = le.Release(t.Context())
			wg.Wait()
		}
		if n := count.Count("subscribe"); n != 1 {
			t.Errorf("subscribed %d times, want once", n)
		}
		time.Sleep(90 * time.Second)
		if ch := w.Memory.Redis.PubSubChannels("holdfast:2:wake:*"); len(ch) != 0 {
			t.Errorf("still subscribed to %v", ch)
		}
	})
}

// An unused Locker sends nothing. A Locker that is no longer used sends nothing either.
// Shows: C1
func TestIdleIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		time.Sleep(time.Hour)
		if c := count.Commands(); len(c) != 0 {
			t.Errorf("sent %v", c)
		}
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(time.Minute)
		_ = le.Release(t.Context())
		time.Sleep(2 * time.Minute)
		count.Reset()
		time.Sleep(time.Hour)
		if c := count.Commands(); len(c) != 0 {
			t.Errorf("sent %v after use", c)
		}
	})
}
