package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The tests of this file repeat mistakes of other libraries in waiting for a key, and in leftover
// data in the store.

// take acquires key in the background and releases it at once. The channel receives the time of the
// grant.
func (p *peerPair) take(l *lockcore.Locker, key string, wait time.Duration) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		le, err := l.Acquire(p.T.Context(), key, lockcore.Terms{Wait: wait})
		if err != nil {
			p.T.Errorf("%q: %v", key, err)
			got <- time.Now().Add(time.Hour)
			return
		}
		got <- time.Now()
		_ = le.Release(p.T.Context())
	}()
	return got
}

// The tasks of a dead worker of asynq wait for its recoverer: the end of the lease of a dead holder
// is found late. Here a waiter gets the key within 250 ms after that.
// Shows: I7
func TestPeer_asynqDeadHolderIsFoundLate(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		for _, lease := range []time.Duration{1500 * time.Millisecond, 7 * time.Second, 30 * time.Second, 61 * time.Second} {
			dead := p.Must(p.a.AcquireFixed(t.Context(), lease.String(), lockcore.Terms{Lease: lease}))
			start := time.Now()
			if d := (<-p.take(p.b, lease.String(), time.Hour)).Sub(start); d < lease || d > lease+250*time.Millisecond {
				t.Errorf("a lease of %v, acquired after %v", lease, d)
			}
			_ = dead.Release(t.Context())
		}
	})
}

// Redisson #1104, #2883, #3004 and #3730: the fair lock waits for a dead waiter. Here the next
// waiter gets the key at once.
// Shows: W6
func TestPeer_redissonDeadWaiterAtTheHead(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		third, _, _ := p.Locker(lockcore.Options{})
		le := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{}))
		ctx, cancel := context.WithCancel(t.Context())
		dead := make(chan struct{})
		go func() {
			defer close(dead)
			_, _ = p.a.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever})
		}()
		time.Sleep(time.Second)
		got := p.take(third, "k", time.Minute)
		time.Sleep(time.Second)
		p.faults.Down()
		time.Sleep(time.Second)
		released := time.Now()
		_ = le.Release(t.Context())
		if d := (<-got).Sub(released); d > 100*time.Millisecond {
			t.Errorf("the next waiter got the key after %v", d)
		}
		cancel()
		<-dead
	})
}

// Redisson #3829: deleting a key and its queue by hand notifies no waiter. Here the waiter gets the
// key with its next request, and the holder loses it at its next renewal.
func TestPeer_redissonKeyDeletedByHand(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{}))
		got := p.take(p.a, "k", time.Minute)
		time.Sleep(5 * time.Second)
		p.Memory.Redis.FlushAll()
		deleted := time.Now()
		if d := (<-got).Sub(deleted); d > 2500*time.Millisecond {
			t.Errorf("acquired after %v", d)
		}
		<-le.Context().Done()
		if d := time.Since(deleted); d > 12*time.Second {
			t.Errorf("the ctx of the holder ended after %v", d)
		}
		_ = le.Release(t.Context())
	})
}

// Redisson #6510: 25 million keys for tokens of unused locks. Here no key stays in Redis, also not
// of holders and waiters that died.
// Shows: I8
func TestPeer_redissonKeysThatStay(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		for i := range 200 {
			_ = p.Must(p.a.Acquire(t.Context(), fmt.Sprint(i), noWait)).Release(t.Context())
		}
		died := p.Must(p.a.AcquireFixed(t.Context(), "holder", lockcore.Terms{}))
		le := p.Must(p.b.AcquireFixed(t.Context(), "waiter", lockcore.Terms{}))
		var dead sync.WaitGroup
		dead.Go(func() { _, _ = p.a.Acquire(t.Context(), "waiter", lockcore.Terms{Wait: time.Minute}) })
		time.Sleep(time.Second)
		if keys := p.Memory.Redis.Keys(); len(keys) != 203 {
			t.Errorf("inconclusive: %d keys, want 202 and a queue", len(keys))
		}
		p.faults.Down()
		crashed, cancel := context.WithCancel(t.Context())
		cancel()
		_ = p.a.Close(crashed)
		dead.Wait()
		time.Sleep(25 * time.Hour)
		if keys := p.Memory.Redis.Keys(); len(keys) > 0 {
			t.Errorf("after 25 h Redis still has %q", keys)
		}
		p.faults.Heal()
		_ = died.Release(t.Context())
		_ = le.Release(t.Context())
	})
}

// rueidis #457: after all waiters have given up, a notification blocks all other calls. Here the
// next call continues when the leader gives up.
// Shows: I6
func TestPeer_rueidislockLeaderGivesUp(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{}))
		var got <-chan time.Time
		var quit sync.WaitGroup
		for i := range 5 { // each sends requests until its time ends, and then the next one is the leader
			quit.Go(func() {
				if _, err := p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Duration(i+1) * 300 * time.Millisecond}); !errors.Is(err, lockcore.ErrBusy) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		got = p.take(p.a, "k", time.Minute)
		quit.Wait()
		time.Sleep(time.Second)
		released := time.Now()
		_ = le.Release(t.Context())
		if d := (<-got).Sub(released); d > 100*time.Millisecond {
			t.Errorf("acquired after %v", d)
		}
	})
}

// rueidislock: a waiter gets the record of a done key only with its next request. Here it gets the
// record at once.
// Shows: W4
func TestPeer_rueidislockRecordWithoutNotification(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le, _, err := p.b.Claim(t.Context(), "k", lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan time.Time, 1)
		go func() {
			_, rec, err := p.a.Claim(t.Context(), "k", lockcore.Claim{Terms: long})
			if err != nil || rec == nil {
				t.Errorf("the waiter got %v, %v, want the record", rec, err)
			}
			got <- time.Now()
		}()
		time.Sleep(5 * time.Second)
		done := time.Now()
		if err := le.Complete(t.Context(), nil, time.Hour); err != nil {
			t.Error(err)
		}
		if d := (<-got).Sub(done); d > 100*time.Millisecond {
			t.Errorf("the record was returned after %v", d)
		}
	})
}

// etcd #9921 and #11456: a session that has lost its lock grants it to a waiter. Here a lost key is
// not handed off.
// Shows: W8
func TestPeer_etcdWaiterOfALostLease(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		got := p.take(p.a, "k", time.Minute)
		synctest.Wait()
		p.Memory.Redis.FlushAll()
		theirs := p.Must(p.b.Acquire(t.Context(), "k", noWait))
		locktest.Lose(le.Context())
		_ = le.Release(t.Context())
		time.Sleep(5 * time.Second)
		select {
		case <-got:
			t.Error("a waiter got the key while another process has it")
			got = nil
		default:
		}
		if err := theirs.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if got != nil {
			<-got
		}
	})
}

// asynq #1144: an orphan that a worker has fetched but not run is no longer an orphan. Here a key
// stays abandoned if a call took it over and did not run.
// Shows: O5
func TestPeer_asynqOrphanForgotten(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		third, _, _ := p.Locker(lockcore.Options{})
		le, _, err := third.Claim(access.WithFixed(t.Context()), "k", lockcore.Claim{Terms: lockcore.Terms{Lease: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		p.faults.SilenceReplies()
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, _, err := p.a.Claim(ctx, "k", lockcore.Claim{}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		p.faults.Heal()
		time.Sleep(5 * time.Second)
		next, _, err := p.b.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait})
		if err != nil || !next.Abandoned() {
			t.Fatalf("takeover: %v, or Abandoned is false", err)
		}
		_ = next.Release(t.Context())
		_ = le.Release(t.Context())
	})
}

// redsync #164: the end of the ctx of the caller is reported as a failure of the servers. Here
// calls end while their request is under way. That does not count as a failure of Redis, which a
// later call would report.
// Shows: C5
func TestPeer_redsyncEndOfACanceledCall(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.Must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		held := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{}))
		p.faults.Delay(100 * time.Millisecond) // one way, so the first reply arrives after 200 ms
		stop := errors.New("stop")
		var calls sync.WaitGroup
		for _, after := range []time.Duration{50, 200, 350} { // at this time the request of the call is under way
			ctx, cancel := context.WithTimeoutCause(t.Context(), after*time.Millisecond, stop)
			defer cancel()
			calls.Go(func() {
				_, err := p.a.Acquire(ctx, "k", lockcore.Terms{Wait: time.Minute})
				if !errors.Is(err, stop) || !errors.Is(err, lockcore.ErrNotRun) {
					t.Errorf("ended after %d ms: %v", after, err)
				}
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		calls.Go(func() { _, _ = p.a.Acquire(ctx, "k", lockcore.Terms{Wait: time.Minute}) }) // sends the next request
		synctest.Wait()
		_, err := p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: 400 * time.Millisecond})
		if !errors.Is(err, lockcore.ErrBusy) || errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("a call behind calls that ended: %v, want ErrBusy", err)
		}
		cancel(stop)
		calls.Wait()
		p.stillHeld(held)
	})
}
