package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Mistakes that other libraries have made, each as a test here; docs/peers.md lists them all. This file: keeping a lease.

// peers runs test in a bubble, on two processes of which the first is behind faults.
func peers(t *testing.T, test func(t *testing.T, p *peerPair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &peerPair{world: newWorld(t)}
		p.t = t
		l, faults, count := p.locker(lockcore.Options{})
		p.a, p.faults, p.sent = l, faults, count
		p.b, _, _ = p.locker(lockcore.Options{})
		client := p.client(faults, count)
		for _, s := range redisbackend.Scripts() { // so that the faults and the counter know their names
			_ = s.Load(t.Context(), client)
		}
		count.Reset()
		test(t, p)
	})
}

// etcd's client counts a lease from the reply to its keep-alive, so that it ends up to one way after the server's (client/v3/lease.go,
// deadlineLoop). node-redlock counted the time of a long acquisition to the lease (#166, #167).
func TestPeer_etcdDeadlineFromTheReply(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context()) // a dial would not get through
		p.faults.SilenceReplies()
		time.AfterFunc(900*time.Millisecond, p.faults.Heal)
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second, NoRenew: true}))
		<-le.Context().Done()
		if left := p.left(p.b, "k"); left < 500*time.Millisecond {
			t.Errorf("granted by a late answer: canceled %v before the lease ends, want a tenth of it", left)
		}
		_ = le.Release(t.Context())

		le = p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(12 * time.Second)
		before := p.sent.Count("renew")
		p.faults.SilenceReplies()
		for p.sent.Count("renew") == before {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(4500 * time.Millisecond)
		p.faults.Heal()
		time.Sleep(time.Millisecond)
		p.faults.Silence()
		<-le.Context().Done()
		if left := p.left(p.b, "k"); left < 3*time.Second {
			t.Errorf("renewed by a late answer: canceled %v before the lease ends, want a tenth of it", left)
		}
		p.faults.Heal()
		_ = le.Release(t.Context())
	})
}

// Redisson 3.14.0 (#3194) and 3.12.1: no more renewals after a reconnect.
func TestPeer_redissonWatchdogAfterReconnect(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 100 {
			time.Sleep(7 * time.Second)
			p.faults.Cut()
		}
		p.stillHeld(le)
	})
}

// Redisson 3.44.0, Consul #912, python-redis-lock and ShedLock's KeepAliveLockProvider: one renewal that fails ends all renewals.
func TestPeer_redissonWatchdogAfterOneError(t *testing.T) {
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script", "NOPERM this user has no permissions", "ERR unknown"} {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
			for range 5 {
				p.memory.Redis.SetError(text)
				time.Sleep(12 * time.Second)
				p.memory.Redis.SetError("")
				time.Sleep(12 * time.Second)
			}
			p.stillHeld(le)
		})
	}
}

// dynamolock #280: a heartbeat of which nobody knows whether it arrived is taken for the loss of the lock.
func TestPeer_dynamolockAmbiguousHeartbeat(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
			f := plant(p.faults, locktest.Script("renew"))
			time.Sleep(15 * time.Second)
			if !struckBy(f) {
				t.Errorf("inconclusive: %s: nothing was struck", name)
			}
			f.Deliver()
			time.Sleep(time.Minute)
			p.stillHeld(le)
		})
	}
}

// Redisson 3.46.0: a lock that was entered again is renewed no more when the inner run has returned.
func TestPeer_redissonWatchdogAfterReentry(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		inner := p.must(p.a.Acquire(le.Context(), "k", lockcore.Terms{Lease: time.Second, NoRenew: true}))
		time.Sleep(time.Minute)
		_ = inner.Release(t.Context())
		time.Sleep(time.Hour)
		p.stillHeld(le)
	})
}

// Redisson 3.48.0: a replica that was promoted does not know the scripts, and renewals fail.
func TestPeer_redissonForgottenScripts(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 200 {
			time.Sleep(5 * time.Second)
			if left := p.left(p.b, "k"); left < 19*time.Second {
				t.Fatalf("%v left of the lease: not renewed in the same round", left)
			}
			if err := p.rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		p.stillHeld(le)
	})
}

// Redisson 4.4.0 and #7272: a renewal that is under way when the lock is given back keeps it, or the next holder's, alive; and goes on.
func TestPeer_redissonRenewalAfterUnlock(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		held := p.faults.Hold(locktest.Script("renew"))
		<-held.Struck()
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next := p.must(p.b.Acquire(t.Context(), "k", lockcore.Terms{Lease: 20 * time.Second, NoRenew: true}))
		time.Sleep(10 * time.Second)
		held.Deliver()
		time.Sleep(time.Second)
		if left := p.left(p.b, "k"); left > 9*time.Second {
			t.Errorf("the late renewal of another keeps the key: %v left", left)
		}
		_ = next.Release(t.Context())
		p.sent.Reset()
		time.Sleep(time.Hour)
		if n := p.sent.Count("renew"); n > 0 {
			t.Errorf("%d renewals for a lock that was given back", n)
		}
	})
}

// Redisson 3.16.3: a tryLock that is interrupted just as it is granted is renewed for ever.
func TestPeer_redissonInterruptedIsRenewed(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.must(p.a.Acquire(t.Context(), "k", noWait)).Release(t.Context())
		p.faults.Delay(100 * time.Millisecond)
		for after := range 25 { // at each moment of the way there and back
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*10*time.Millisecond)
			if le, err := p.a.Acquire(ctx, "k", lockcore.Terms{}); err == nil {
				_ = le.Release(t.Context())
			}
			cancel()
			time.Sleep(time.Second)
			_ = p.must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
		}
		for n := int64(1); ; n++ { // and at each look at its ctx, so also between the grant's reply and its use: finding B18
			inner, cancel := context.WithCancel(t.Context())
			ctx := &canceledAtLook{Context: inner, cancel: cancel, n: n}
			le, err := p.a.Acquire(ctx, "k", lockcore.Terms{})
			last := ctx.looks.Load() < n
			if err == nil {
				_ = le.Release(t.Context())
			}
			cancel()
			time.Sleep(time.Second)
			_ = p.must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
			if last {
				break
			}
		}
		p.sent.Reset()
		time.Sleep(time.Hour)
		if n := p.sent.Count("renew"); n > 0 {
			t.Errorf("%d renewals for nobody", n)
		}
	})
}

// canceledAtLook is a ctx that is canceled by the n-th call of its Err, before that returns.
type canceledAtLook struct {
	context.Context //nolint:containedctx // it is one
	cancel          func()
	n               int64
	looks           atomic.Int64
}

func (c *canceledAtLook) Err() error {
	if c.looks.Add(1) == c.n {
		c.cancel()
	}
	return c.Context.Err()
}

// RedLock.net #68: 35 locks of hung handlers were renewed for a week; Redisson #2254 and python-redis-lock #106 ask for a bound.
func TestPeer_redlockNetOrphansRenewedForAWeek(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{MaxHold: time.Hour}))
		time.Sleep(2 * time.Hour) // and does not look at its ctx
		next := p.must(p.b.Acquire(t.Context(), "k", noWait))
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// Redisson #5115: a worker is dead, and its watchdog is well ("feed the dog").
func TestPeer_redissonFeedTheDog(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Stall: time.Minute}))
		for range 60 {
			time.Sleep(50 * time.Second)
			lockcore.Beat(le.Context())
		}
		if le.Context().Err() != nil {
			t.Error("lost although it was fed")
		}
		time.Sleep(time.Hour)
		next := p.must(p.b.Acquire(t.Context(), "k", noWait))
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrStalled) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// Redisson #5698: the watchdog renews one node of a cluster after the other, and a slow one holds up the rest.
func TestPeer_redissonNodesInTurn(t *testing.T) {
	testlevel.Full(t)
	peers(t, func(t *testing.T, p *peerPair) {
		heard := new(passes)
		l, faults, _ := p.locker(lockcore.Options{Observer: heard})
		for i := range 2700 { // more than half are due in the first round, which is more than a batch
			le := p.must(l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{}))
			defer func() {
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(8 * time.Second)
		faults.Silence()
		unanswered := func() int { _, sum, _ := heard.sum(); return sum.Failed }
		for unanswered() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // a batch on a new connection may be given up later than one beside it
		together := map[int64]int{} // leases without a reply, by when their batch began
		heard.mu.Lock()
		for _, p := range heard.all {
			together[p.end.Add(-p.Took).UnixNano()] += p.Failed
		}
		heard.mu.Unlock()
		if n := slices.Max(slices.Collect(maps.Values(together))); n <= 1000 {
			t.Errorf("at most %d leases were asked for at the same time: one batch", n)
		}
		faults.Heal()
		time.Sleep(15 * time.Second)
	})
}
