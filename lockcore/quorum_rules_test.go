package lockcore_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The tests in this file have a case for each rule of package quorum that the other tests reach only by
// chance.

// connected returns a Locker with connections to all servers.
func (s masters) connected(t *testing.T, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	l := s.locker(t, o)
	le, err := l.Acquire(t.Context(), "other", noWait)
	ok(t, err)
	ok(t, le.Release(t.Context()))
	return l
}

// A lease counts from before the first request, however late the replies are.
// Shows: P7
func TestQuorumCountsFromRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		l := s.connected(t, lockcore.Options{})
		for _, m := range s {
			m.Delay(80 * time.Millisecond) // 160 ms of at most 200 ms
		}
		const lease = 4 * time.Second
		begin := time.Now()
		le, err := l.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: lease, Wait: lockcore.NoWait})
		ok(t, err)
		<-le.Context().Done()
		quickly(t, begin, lease*89/100) // a tenth before the end, and 1 % for the clocks
		_ = le.Release(t.Context())
	})
}

// A request that no majority has granted is withdrawn also from a server whose reply was lost.
// Shows: P7
func TestQuorumWithdrawsWithoutReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		v, l := s.votes(t), s.connected(t, lockcore.Options{})
		s[1].Down()
		var lost []*faulty.Fault
		for range 20 { // of each repeat too
			lost = append(lost, s[0].LoseReply(faulty.Script("acquire")))
		}
		_, err := l.Acquire(t.Context(), "k", noWait)
		fails(t, err, lockcore.ErrNotRun)
		<-lost[0].Replied()
		s[1].Heal()
		v.expect(t, "k", nil, 0)
	})
}

// Tokens grow although the next majority has only one server of the last one, whose clock is behind, and
// the last hold expired.
// Shows: P7
func TestQuorumRaisesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		a, b := s.locker(t, lockcore.Options{}), s.locker(t, lockcore.Options{})
		s[0].Identify(func(id *pipe.Identity) { id.Ahead = 10 * time.Second })
		s[2].Down()
		le, err := a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: time.Second, Wait: lockcore.NoWait})
		ok(t, err)
		first := le.Token()
		time.Sleep(2 * time.Second)
		s[2].Heal()
		s[0].Down()
		le, err = b.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		if le.Token() <= first {
			t.Errorf("token %d after %d", le.Token(), first)
		}
		ok(t, le.Release(t.Context()))
	})
}

// A call returns when its ctx ends, also while a server does not reply that must raise its token. The
// error names that server.
func TestQuorumRaiseEndsWithCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		l := s.connected(t, lockcore.Options{})
		s[0].Identify(func(id *pipe.Identity) { id.Ahead = 10 * time.Second })
		s[2].Down()
		s[1].LoseRequest(faulty.Script("renew"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := l.Acquire(ctx, "k", lockcore.Terms{})
		fails(t, err, context.DeadlineExceeded)
		fails(t, err, lockcore.ErrUnavailable)
		if !strings.Contains(err.Error(), "10.0.0.2:6379: ") {
			t.Error(err)
		}
		quickly(t, begin, 60*time.Millisecond)
	})
}

// A minority keeps no lease.
// Shows: P7
func TestQuorumMinorityRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		l := s.connected(t, lockcore.Options{})
		begin := time.Now()
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: 3 * time.Second})
		ok(t, err)
		s[0].Down()
		s[1].Down()
		select {
		case <-le.Context().Done():
		case <-time.After(time.Minute):
		}
		quickly(t, begin, 3*time.Second)
		s[0].Heal()
		s[1].Heal()
		_ = le.Release(t.Context())
	})
}

// A release is repeated until a server that was away has it.
// Shows: P7
func TestQuorumReleaseReachesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		v, l := s.votes(t), s.connected(t, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		v.expect(t, "k", l, 3)
		s[2].Down()
		ok(t, le.Release(t.Context()))
		s[2].Heal()
		v.expect(t, "k", nil, 0)
	})
}

// A holder obeys a revocation that one server of a majority knows of: another server may have been
// away when the key was revoked, and a third one may be away now.
// Shows: P7
func TestQuorumRevokedOnOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		v, l := s.votes(t), s.connected(t, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		v.expect(t, "k", l, 3)
		s[2].Down()
		ok(t, v[1].Revoke(t.Context(), event.KindExclusive, "k"))
		<-le.Context().Done()
		fails(t, context.Cause(le.Context()), lockcore.ErrRevoked)
		s[2].Heal()
		_ = le.Release(t.Context())
	})
}

// A request that fails after a later one got a reply does not make the server count as failed.
// Shows: P7
func TestServerFailedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, heard := newMasters(t), new(locktest.Recorder)
		l := s.connected(t, lockcore.Options{Observer: heard})
		lost := s[1].LoseRequest(func(r faulty.Request) bool { return r.About("{late}") })
		for _, key := range []string{"late", "k"} { // the second one while the first one is under way
			le, err := l.Acquire(t.Context(), key, noWait)
			ok(t, err)
			defer func() { ok(t, le.Release(t.Context())) }()
			time.Sleep(10 * time.Millisecond)
		}
		<-lost.Struck()
		time.Sleep(2 * time.Second)
		if got := locktest.EventsOf[event.ServerFailed](heard); len(got) > 0 {
			t.Errorf("failed: %v", got)
		}
	})
}
