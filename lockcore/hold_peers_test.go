package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Mistakes that other libraries have made: getting a key and giving it back.

// peerPair is two processes on one Redis.
type peerPair struct {
	*world
	a, b   *lockcore.Locker
	faults *locktest.Faults   // of a
	sent   *redistest.Counter // by a
}

// client returns one behind the faults and the counter of a process.
func (p *peerPair) client(faults *locktest.Faults, count *redistest.Counter) *redis.Client {
	return p.memory.Client(p.t, func(o *redis.Options) { o.Dialer = count.Dial(faults.Dial(o.Dialer)) })
}

// stillHeld fails unless the lease is in force and keeps others out, and ends it.
func (p *peerPair) stillHeld(le *lockcore.Lease) {
	p.t.Helper()
	if err := le.Context().Err(); err != nil {
		p.t.Errorf("the lease is over: %v", context.Cause(le.Context()))
	}
	for _, l := range []*lockcore.Locker{p.a, p.b} {
		if other, err := l.Acquire(p.t.Context(), le.Key(), noWait); !errors.Is(err, lockcore.ErrBusy) {
			p.t.Errorf("another call came in: %v", err)
			if err == nil {
				_ = other.Release(p.t.Context())
			}
		}
	}
	if err := le.Release(p.t.Context()); err != nil {
		p.t.Errorf("Release: %v", err)
	}
}

// redsync's Lock undoes on the ctx that was canceled, so that the key stays for its whole TTL.
func TestPeer_redsyncCanceledAcquireLeavesItsKey(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		p.faults.SilenceReplies() // Redis grants, but its reply is lost
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := p.a.Acquire(ctx, "k", lockcore.Terms{}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		p.faults.Heal()
		time.Sleep(2 * time.Second)
		le := p.must(p.b.Acquire(t.Context(), "k", noWait))
		if le.Abandoned() {
			t.Error("nobody ran, and yet it was abandoned")
		}
		_ = le.Release(t.Context())
	})
}

// redsync's TryLock of a free key says "taken" when the first reply was lost: its own value is in the way.
func TestPeer_redsyncTakenByItself(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			f := plant(p.faults, locktest.Script("acquire"))
			le, err := p.a.Acquire(t.Context(), "k", noWait)
			if err != nil || !struckBy(f) {
				t.Fatalf("%s: a free key: %v", name, err)
			}
			f.Deliver()
			p.stillHeld(le)
		})
	}
}

// redsync's Extend returned after 10 s for a lock of 1 s, when Redis was silent.
func TestPeer_redsyncExtendTakesLongerThanTheLease(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second, NoRenew: true}))
		p.faults.Silence()
		start := time.Now()
		if err := le.Extend(t.Context(), time.Minute); !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("extended in silence: %v", err)
		}
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		p.faults.Heal()
		_ = le.Release(t.Context())
	})
}

// redsync PR #151: an extension that failed released the lock, which was still held.
func TestPeer_redsyncFailedExtendReleases(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{NoRenew: true}))
			f := plant(p.faults, locktest.Script("renew"))
			err := le.Extend(t.Context(), time.Minute)
			if cut := strings.HasSuffix(name, "cut"); cut && err != nil || !cut && !errors.Is(err, lockcore.ErrUnavailable) { // it tries again after a cut
				t.Errorf("%s: %v", name, err)
			}
			f.Deliver()
			time.Sleep(20 * time.Second)
			p.stillHeld(le)
		})
	}
}

// rueidislock sends the end of a lock by its own clock (PXAT): where the server's is ahead, two get the same key.
func TestPeer_rueidislockClientClock(t *testing.T) {
	for _, ahead := range []time.Duration{6 * time.Second, time.Hour, -time.Hour} {
		peers(t, func(t *testing.T, p *peerPair) {
			p.memory.Redis.SetTime(time.Now().Add(ahead))
			le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second, NoRenew: true}))
			if left := p.left(p.b, "k"); left != 5*time.Second {
				t.Errorf("server ahead by %v: the lease of 5 s lasts %v", ahead, left)
			}
			p.stillHeld(le)
		})
	}
}

// etcd #22082: an Unlock that is sent again ends a newer lock of the same session.
func TestPeer_etcdRetriedUnlock(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		held := p.faults.Hold(locktest.Script("release"))
		_ = le.Release(t.Context()) // the first copy is on its way for long; a second one does it
		next := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		if !struckBy(held) {
			t.Error("inconclusive: no release was held")
		}
		held.Deliver()
		time.Sleep(time.Second)
		p.stillHeld(next)
	})
}

// Consul #2371: who has lost the lock is told ErrLockHeld when it asks for it again.
func TestPeer_consulHeldAfterLoss(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		p.faults.Silence()
		<-le.Context().Done()
		p.faults.Heal()
		next := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})) // the first handler has not returned
		if next.Token() <= le.Token() {
			t.Errorf("token %d after %d", next.Token(), le.Token())
		}
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// node-redlock #65, #362 and #309: to release a lock that has run out fails, or waits for seconds.
func TestPeer_nodeRedlockReleaseOfALostLock(t *testing.T) {
	for _, silent := range []bool{false, true} {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second, NoRenew: true}))
			time.Sleep(time.Minute)
			most := time.Duration(0)
			if silent {
				p.faults.Silence()
				most = time.Second
			}
			start := time.Now()
			if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
			if d := time.Since(start); d > most {
				t.Errorf("it took %v, Redis silent: %v", d, silent)
			}
			p.faults.Heal()
		})
	}
}

// Redisson's RFencedLock takes a new token for a nested lock, and its getToken may answer the next holder's.
func TestPeer_redissonTokenOfAnother(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second, NoRenew: true}))
		mine := le.Token()
		inner := p.must(p.a.Acquire(le.Context(), "k", lockcore.Terms{}))
		if h, ok := lockcore.HoldOf(inner.Context(), "k"); h.Token != mine || !ok || inner.Token() != mine {
			t.Errorf("token %d inside, %d outside", h.Token, mine)
		}
		next := p.must(p.b.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		if le.Token() != mine || next.Token() <= mine {
			t.Errorf("tokens %d and %d, was %d", le.Token(), next.Token(), mine)
		}
		if h, ok := lockcore.HoldOf(inner.Context(), "k"); ok {
			t.Errorf("a lost lease has token %d", h.Token)
		}
		_ = inner.Release(t.Context())
		_ = le.Release(t.Context())
		p.stillHeld(next)
	})
}

// Redisson #3484, #4818, #5623 and 3.19.2: the lease of one call becomes that of another.
func TestPeer_redissonLeaseOfAnotherCall(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		leases := []time.Duration{5 * time.Second, time.Minute, 20 * time.Second, time.Minute, 5 * time.Second}
		for i, d := range leases {
			terms := lockcore.Terms{Lease: d, NoRenew: true}
			beside := p.must(p.a.Acquire(t.Context(), fmt.Sprint("beside ", i), terms))
			defer func() { _ = beside.Release(t.Context()) }()
			le := p.must(p.a.Acquire(t.Context(), "k", terms))
			if left := p.left(p.b, "k"); left != d {
				t.Errorf("asked for %v, got %v", d, left)
			}
			_ = le.Release(t.Context())
		}
		for i, d := range leases {
			if left := p.left(p.b, fmt.Sprint("beside ", i)); left != d {
				t.Errorf("asked for %v, has %v", d, left)
			}
		}
	})
}

// Redisson #6878, #2224 and #6662: the lock belongs to a thread, so that work which goes on in another cannot give it back.
func TestPeer_redissonReleasedByAnotherThread(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		released := make(chan error)
		go func() { released <- le.Release(context.Background()) }()
		if err := <-released; err != nil {
			t.Error(err)
		}
		_ = p.must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
	})
}
