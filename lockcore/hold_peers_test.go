package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The tests of this file repeat mistakes of other libraries in acquiring and releasing a key.

// peerPair has two Lockers on one Redis, as two processes have.
type peerPair struct {
	*world
	a, b   *lockcore.Locker
	faults *faulty.Network    // of a
	sent   *redistest.Counter // by a
}

// client returns a client behind the faults and the counter of a process.
func (p *peerPair) client(faults *faulty.Network, count *redistest.Counter) *redis.Client {
	return p.Memory.Client(p.T, func(o *redis.Options) { o.Dialer = count.Dial(faults.Dial(o.Dialer)) })
}

// stillHeld fails unless the lease is valid and excludes other calls. It releases the lease.
func (p *peerPair) stillHeld(le *lockcore.Lease) {
	p.T.Helper()
	if err := le.Context().Err(); err != nil {
		p.T.Errorf("the lease has ended: %v", context.Cause(le.Context()))
	}
	for _, l := range []*lockcore.Locker{p.a, p.b} {
		if other, err := l.Acquire(p.T.Context(), le.Key(), noWait); !errors.Is(err, lockcore.ErrBusy) {
			p.T.Errorf("another call acquired the key: %v", err)
			if err == nil {
				_ = other.Release(p.T.Context())
			}
		}
	}
	if err := le.Release(p.T.Context()); err != nil {
		p.T.Errorf("Release: %v", err)
	}
}

// redsync: Lock withdraws on the ctx that was canceled, so the key stays held for its TTL. Here the
// grant of a canceled call is withdrawn.
// Shows: R1
func TestPeer_redsyncCanceledAcquireLeavesItsKey(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		_ = p.Must(p.a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		p.faults.SilenceReplies() // Redis grants the key, but its reply is lost
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := p.a.Acquire(ctx, "k", lockcore.Terms{}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		p.faults.Heal()
		time.Sleep(2 * time.Second)
		le := p.Must(p.b.Acquire(t.Context(), "k", noWait))
		if le.Abandoned() {
			t.Error("Abandoned is true, but no handler ran")
		}
		_ = le.Release(t.Context())
	})
}

// redsync: TryLock of a free key reports it as held if the first reply was lost, because it finds
// its own value. Here the repeated request gets its own grant.
func TestPeer_redsyncTakenByItself(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			f := plant(p.faults, faulty.Script("acquire"))
			le, err := p.a.Acquire(t.Context(), "k", noWait)
			if err != nil || !struckBy(f) {
				t.Fatalf("%s: acquire of a free key: %v", name, err)
			}
			f.Deliver()
			p.stillHeld(le)
		})
	}
}

// redsync: Extend of a lock of 1 s returned after 10 s while Redis did not reply. Here Extend
// returns within its bound.
func TestPeer_redsyncExtendTakesLongerThanTheLease(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second}))
		p.faults.Silence()
		start := time.Now()
		if err := le.Extend(t.Context(), time.Minute); !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("Extend while Redis does not reply: %v", err)
		}
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("Extend took %v", d)
		}
		p.faults.Heal()
		_ = le.Release(t.Context())
	})
}

// redsync PR #151: a failed extension released a lock that was still held. Here the lease stays.
func TestPeer_redsyncFailedExtendReleases(t *testing.T) {
	for name, plant := range faultKinds {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{}))
			f, again := plant(p.faults, faulty.Script("renew")), plant(p.faults, faulty.Script("renew")) // after one fault the repeat succeeds
			err := le.Extend(t.Context(), time.Minute)
			if cut := strings.HasSuffix(name, "cut"); cut && err != nil || !cut && !errors.Is(err, lockcore.ErrUnavailable) { // after a cut it is sent again
				t.Errorf("%s: %v", name, err)
			}
			f.Deliver()
			again.Deliver()
			time.Sleep(20 * time.Second)
			p.stillHeld(le)
		})
	}
}

// rueidislock sends the end of a lock by the clock of the client (PXAT). If the clock of the server
// is ahead, two clients get the same key. Here only the clock of the server counts.
func TestPeer_rueidislockClientClock(t *testing.T) {
	for _, ahead := range []time.Duration{6 * time.Second, time.Hour, -time.Hour} {
		peers(t, func(t *testing.T, p *peerPair) {
			p.Memory.Redis.SetTime(time.Now().Add(ahead))
			le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second}))
			if left := p.Left(p.b, "k"); left != 5*time.Second {
				t.Errorf("server ahead by %v: the lease of 5 s lasts %v", ahead, left)
			}
			p.stillHeld(le)
		})
	}
}

// etcd #22082: a repeated Unlock ends a newer lock of the same session. Here a late duplicate of a
// release changes nothing.
func TestPeer_etcdRetriedUnlock(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		held := p.faults.Hold(faulty.Script("release"))
		_ = le.Release(t.Context()) // the first copy is delayed; a second one releases the key
		next := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		if !struckBy(held) {
			t.Error("inconclusive: no release was held")
		}
		held.Deliver()
		time.Sleep(time.Second)
		p.stillHeld(next)
	})
}

// Consul #2371: a client that lost its lock gets ErrLockHeld when it acquires it again. Here the
// next call of the process gets the key.
func TestPeer_consulHeldAfterLoss(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		p.faults.Silence()
		<-le.Context().Done()
		p.faults.Heal()
		next := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})) // the first handler has not returned
		if next.Token() <= le.Token() {
			t.Errorf("token %d after %d", next.Token(), le.Token())
		}
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		p.stillHeld(next)
	})
}

// node-redlock #65, #362 and #309: releasing an expired lock fails, or waits for seconds. Here
// Release returns ErrLost at once, or within 1 s while Redis does not reply.
func TestPeer_nodeRedlockReleaseOfALostLock(t *testing.T) {
	for _, silent := range []bool{false, true} {
		peers(t, func(t *testing.T, p *peerPair) {
			le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second}))
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
				t.Errorf("Release took %v; Redis silent: %v", d, silent)
			}
			p.faults.Heal()
		})
	}
}

// Redisson: RFencedLock takes a new token for a nested lock, and its getToken may return the token
// of the next holder. Here a nested call has the token of its hold, which does not change.
// Shows: N1
func TestPeer_redissonTokenOfAnother(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second}))
		mine := le.Token()
		inner := p.Must(p.a.Acquire(le.Context(), "k", lockcore.Terms{}))
		if h, ok := access.HoldOf(inner.Context(), "k"); h.Token != mine || !ok || inner.Token() != mine {
			t.Errorf("token %d inside, %d outside", h.Token, mine)
		}
		next := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		if le.Token() != mine || next.Token() <= mine {
			t.Errorf("tokens %d and %d, was %d", le.Token(), next.Token(), mine)
		}
		if h, ok := access.HoldOf(inner.Context(), "k"); ok {
			t.Errorf("a lost lease has token %d", h.Token)
		}
		_ = inner.Release(t.Context())
		_ = le.Release(t.Context())
		p.stillHeld(next)
	})
}

// Redisson #3484, #4818, #5623 and 3.19.2: the lease of one call is applied to another one. Here
// each call has its own lease.
func TestPeer_redissonLeaseOfAnotherCall(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		leases := []time.Duration{5 * time.Second, time.Minute, 20 * time.Second, time.Minute, 5 * time.Second}
		for i, d := range leases {
			terms := testcall.Call{Fixed: true, Terms: lockcore.Terms{Lease: d}}
			beside := p.Must(terms.Acquire(t.Context(), p.a, fmt.Sprint("beside ", i)))
			defer func() { _ = beside.Release(t.Context()) }()
			le := p.Must(terms.Acquire(t.Context(), p.a, "k"))
			if left := p.Left(p.b, "k"); left != d {
				t.Errorf("lease %v, remaining %v", d, left)
			}
			_ = le.Release(t.Context())
		}
		for i, d := range leases {
			if left := p.Left(p.b, fmt.Sprint("beside ", i)); left != d {
				t.Errorf("lease %v of a key held at the same time, remaining %v", d, left)
			}
		}
	})
}

// Redisson #6878, #2224 and #6662: the lock belongs to a thread, so work that continues in another
// thread cannot release it. Here any goroutine can release a lease.
func TestPeer_redissonReleasedByAnotherThread(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		le := p.Must(p.a.Acquire(t.Context(), "k", lockcore.Terms{}))
		released := make(chan error)
		go func() { released <- le.Release(context.Background()) }()
		if err := <-released; err != nil {
			t.Error(err)
		}
		_ = p.Must(p.b.Acquire(t.Context(), "k", noWait)).Release(t.Context())
	})
}
