package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The tests in this file have the cases of the tests of redsync (github.com/go-redsync/redsync,
// v4.18.1: mutex_test.go, redsync_test.go, error_test.go) and of its options. The name of each case is
// in the comment of its test. redsync has 4 and 8 servers there, here they are 3 and 5. What differs
// says so. There are no cases for its generator of values and for the hashes of its scripts.

// votes are a Locker on each server alone, which sees and takes single votes.
type votes []*lockcore.Locker

func (s masters) votes(t *testing.T) (v votes) {
	t.Helper()
	for _, m := range s {
		l, err := lockcore.New(m.client, lockcore.Options{})
		ok(t, err)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		v = append(v, l)
	}
	return v
}

// look returns the state of a key on each server, after the commands that calls did not wait for.
func (v votes) look(t *testing.T, key string) (all []lockcore.Holding) {
	t.Helper()
	time.Sleep(time.Second)
	for _, l := range v {
		h, err := l.Inspect(t.Context(), event.KindExclusive, key)
		ok(t, err)
		all = append(all, h)
	}
	return all
}

// expect checks that l holds the key on n servers; nil: that n servers have it held.
func (v votes) expect(t *testing.T, key string, l *lockcore.Locker, n int) {
	t.Helper()
	held := 0
	for _, h := range v.look(t, key) {
		if h.State == lockcore.StateHeld && (l == nil || h.Holder.Locker == l.ID()) {
			held++
		}
	}
	if held != n {
		t.Errorf("%q is held on %d servers, want %d", key, held, n)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func quickly(t *testing.T, start time.Time, d time.Duration) {
	t.Helper()
	if took := time.Since(start); took > d {
		t.Errorf("it took %v, want at most %v", took, d)
	}
}

// overServers runs a test in a bubble with 3 and with 5 servers. majority is 2 or 3.
func overServers(t *testing.T, test func(t *testing.T, s masters, v votes, majority int)) {
	t.Helper()
	for n := 3; n <= 5; n += 2 {
		synctest.Test(t, func(t *testing.T) {
			s := mastersOf(t, n)
			test(t, s, s.votes(t), n/2+1)
		})
	}
}

// TestRedsync, TestMutex, TestTryLock: calls for different keys at the same time all get them at the first
// try, on a majority, and can extend them. After the release no server has them.
func TestRedsyncKeysAtOnce(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, _ int) {
		l := s.locker(t, lockcore.Options{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				key := fmt.Sprintf("k%d", i)
				le, err := l.Acquire(t.Context(), key, noWait)
				if err != nil {
					t.Error(err)
					return
				}
				ok(t, le.Extend(t.Context(), 30*time.Second))
				v.expect(t, key, l, len(s))
				ok(t, le.Release(t.Context()))
				v.expect(t, key, nil, 0)
			})
		}
		wg.Wait()
	})
}

// TestMutexAlreadyLocked, TestValid: another program does not get a key that is held, neither with one
// try nor by waiting, and the hold is valid meanwhile. redsync's hold lasts for its fixed hour, here it
// is renewed.
func TestRedsyncAlreadyLocked(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, _ int) {
		a, b := s.locker(t, lockcore.Options{}), s.locker(t, lockcore.Options{})
		le, err := a.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		v.expect(t, "k", a, len(s)) // also the servers whose votes Acquire did not wait for
		for _, wait := range []time.Duration{lockcore.NoWait, 10 * time.Second} {
			start := time.Now()
			_, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
			fails(t, err, lockcore.ErrBusy)
			quickly(t, start, max(wait, 0)+time.Second)
		}
		ok(t, le.Context().Err())
		v.expect(t, "k", a, len(s))
		ok(t, le.Release(t.Context()))
	})
}

// TestMutexQuorum: one try gets the key if a majority is free, for each subset of the servers that
// grants it to others. Otherwise it is refused, and no server keeps its vote.
func TestRedsyncQuorum(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, majority int) {
		l := s.locker(t, lockcore.Options{})
		for mask := range 1 << len(s) {
			key, taken := fmt.Sprintf("k%d", mask), 0
			for i, one := range v {
				if mask>>i&1 == 1 {
					le, err := one.Acquire(t.Context(), key, noWait)
					ok(t, err)
					defer func() { ok(t, le.Release(t.Context())) }()
					taken++
				}
			}
			le, err := l.Acquire(t.Context(), key, noWait)
			if len(s)-taken >= majority {
				ok(t, err)
				v.expect(t, key, l, len(s)-taken)
				ok(t, le.Release(t.Context()))
			} else {
				fails(t, err, lockcore.ErrBusy)
			}
			v.expect(t, key, nil, taken)
		}
	})
}

// TestMutexExtend: Extend moves the end of the lease on all servers.
func TestRedsyncExtend(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, _ int) {
		le, err := s.locker(t, lockcore.Options{}).AcquireFixed(t.Context(), "k", noWait)
		ok(t, err)
		time.Sleep(5 * time.Second)
		before := v.look(t, "k")
		ok(t, le.Extend(t.Context(), 30*time.Second))
		for i, h := range v.look(t, "k") {
			if h.Remaining <= before[i].Remaining {
				t.Errorf("server %d: %v remain, before %v", i, h.Remaining, before[i].Remaining)
			}
		}
		ok(t, le.Release(t.Context()))
	})
}

// TestMutexExtendExpired, TestMutexUnlockExpired, and both tests of SetNXOnExtend: an expired lease can
// neither be extended nor released, and the hold of the next call does not change. This differs from
// TestSetNXOnExtendAcquiresLockWhenKeyIsExpired: nothing acquires the key again, because another holder
// may have had it meanwhile.
func TestRedsyncExpired(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, _ int) {
		a, b := s.locker(t, lockcore.Options{}), s.locker(t, lockcore.Options{})
		first, err := a.AcquireFixed(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait, Lease: time.Second})
		ok(t, err)
		time.Sleep(2 * time.Second)
		fails(t, first.Extend(t.Context(), 30*time.Second), lockcore.ErrLost)
		v.expect(t, "k", nil, 0)
		second, err := b.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		fails(t, first.Extend(t.Context(), 30*time.Second), lockcore.ErrLost)
		fails(t, first.Release(t.Context()), lockcore.ErrLost)
		v.expect(t, "k", b, len(s))
		ok(t, second.Release(t.Context()))
	})
}

// WithSetNXOnExtend is for servers that restart often. It differs: a server that has lost a lease does
// not get it again. Without a minority the lease goes on; without a majority it is lost at the next
// command.
func TestRedsyncLostData(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, majority int) {
		l := s.locker(t, lockcore.Options{})
		le, err := l.AcquireFixed(t.Context(), "k", noWait)
		ok(t, err)
		for i, m := range s[:majority] {
			ok(t, le.Extend(t.Context(), 30*time.Second))
			v.expect(t, "k", l, len(s)-i)
			m.Redis.FlushAll()
		}
		fails(t, le.Extend(t.Context(), 30*time.Second), lockcore.ErrLost)
		fails(t, context.Cause(le.Context()), lockcore.ErrLost)
		fails(t, le.Release(t.Context()), lockcore.ErrLost)
		v.expect(t, "k", nil, 0)
	})
}

// TestMutexLockUnlockSplit differs: with redsync whoever knows the value of a hold can release it. Here
// that needs a ticket, which a majority does not have, and the hold goes on. Revoke ends it.
func TestRedsyncSplit(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, _ int) {
		a, b := s.locker(t, lockcore.Options{}), s.locker(t, lockcore.Options{})
		le, err := a.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		_, err = le.Ticket(t.Context(), time.Minute)
		fails(t, err, lockcore.ErrUnsupported)
		v.expect(t, "k", a, len(s))
		ok(t, b.Revoke(t.Context(), event.KindExclusive, "k"))
		<-le.Context().Done()
		fails(t, le.Release(t.Context()), lockcore.ErrRevoked)
		v.expect(t, "k", nil, 0)
	})
}

// WithFailFast: a silent minority delays neither a grant nor an Extend nor a Release. By default
// redsync waits for it. A refusal differs from that option: it waits for a silent server for at most
// 250 ms, because its vote may be needed.
func TestRedsyncFailFast(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, _ votes, majority int) {
		a, b := s.locker(t, lockcore.Options{}), s.locker(t, lockcore.Options{})
		for _, m := range s[majority:] {
			m.Silence()
		}
		for i := range 8 { // keys with different homes
			key, start := fmt.Sprintf("k%d", i), time.Now()
			le, err := a.Acquire(t.Context(), key, noWait)
			ok(t, err)
			ok(t, le.Extend(t.Context(), 30*time.Second))
			quickly(t, start, 0)
			start = time.Now()
			_, err = b.Acquire(t.Context(), key, noWait)
			fails(t, err, lockcore.ErrBusy)
			quickly(t, start, 250*time.Millisecond)
			start = time.Now()
			ok(t, le.Release(t.Context()))
			quickly(t, start, 0)
		}
	})
}

// Until: the hold is valid for less than the lease, counted from before the first send, also if all
// servers are slow. redsync's drift factor leaves 1 % of the lease, here it is 11 % and 5 ms.
func TestRedsyncValidity(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, _ votes, _ int) {
		l := s.locker(t, lockcore.Options{})
		for _, m := range s {
			m.Delay(50 * time.Millisecond)
		}
		begin := time.Now()
		le, err := l.AcquireFixed(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait, Lease: 10 * time.Second})
		ok(t, err)
		<-le.Context().Done()
		quickly(t, begin, 8895*time.Millisecond)
		fails(t, le.Release(t.Context()), lockcore.ErrLost)
	})
}

// TestRedisErrorIs, TestRedisErrorAs, and the errors of Lock and Unlock without a majority: they wrap
// those of the servers. Release differs: it returns nil, because the hold was valid until then, and it is
// repeated until the servers have it.
func TestRedsyncErrors(t *testing.T) {
	overServers(t, func(t *testing.T, s masters, v votes, majority int) {
		l := s.locker(t, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		for _, m := range s[:majority] {
			m.Down()
		}
		ok(t, le.Release(t.Context()))
		_, err = l.Acquire(t.Context(), "other", noWait)
		if _, dial := errors.AsType[*net.OpError](err); !dial || !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable and a net.OpError", err)
		}
		for _, m := range s {
			m.Heal()
		}
		time.Sleep(5 * time.Second)
		v.expect(t, "k", nil, 0)
		v.expect(t, "other", nil, 0)
	})
}
