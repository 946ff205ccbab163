package quorum_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
)

const lease = 30 * time.Second

// link is a master that can be cut off, so that it gets no requests, or can be slow to get releases.
type link struct {
	*memory.Backend
	cut  bool
	slow time.Duration
}

func (l *link) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if l.cut {
		return backend.AcquireReply{Sent: time.Now()}, errCut
	}
	return l.Backend.Acquire(ctx, r)
}

func (l *link) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	time.Sleep(l.slow)
	return l.Backend.Release(ctx, r)
}

// Drain does not end before ctx while the master is cut off: a withdrawal is not confirmed.
func (l *link) Drain(ctx context.Context) {
	if l.cut {
		<-ctx.Done()
	}
}

var errCut = errors.New("cut off")

func (l *link) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	if l.cut {
		return []backend.RenewReply{{Err: errCut}}
	}
	return l.Backend.Renew(ctx, rs)
}

// open returns a backend on three masters in memory, and the run ids that it knows.
func open(t *testing.T) (*quorum.Backend, *quorum.Servers, []*link) {
	t.Helper()
	servers := quorum.NewServers([]string{"a", "b", "c"}, lease, nil)
	var links []*link
	var masters []quorum.Master
	for i := range 3 {
		m, err := memory.New(memory.Options{Options: backend.Options{Locker: "00000000-0000-0000-0000-000000000001"}})
		if err == nil {
			err = servers.Connected(i, backend.ServerInfo{RunID: rand.Text(), Age: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, &link{Backend: m})
		masters = append(masters, links[i])
	}
	b := quorum.New(masters, servers)
	t.Cleanup(b.Close)
	return b, servers, links
}

func acquire(t *testing.T, b *quorum.Backend, name string) (*backend.Key, string, backend.AcquireReply) {
	t.Helper()
	key, id := b.Key(backend.KindExclusive, name), rand.Text()
	reply, err := b.Acquire(t.Context(), backend.AcquireRequest{Key: &key, ID: id, Lease: lease, Retention: lease + time.Minute, First: true, Timeout: time.Second})
	if err != nil || reply.Outcome != backend.OutcomeGranted {
		t.Fatalf("%+v, %v", reply, err)
	}
	return &key, id, reply
}

// A process that a holder's missing server has granted the key withdraws, and then waits in the queue of a
// server that the holder has. Otherwise each of its requests would be granted there, and withdrawn.
// Shows: P6
func TestWaitsWhereTheHolderIs(t *testing.T) {
	for missing := range 3 {
		synctest.Test(t, func(t *testing.T) {
			b, _, links := open(t)
			key, holder := b.Key(backend.KindExclusive, "k"), rand.Text()
			for i, l := range links {
				if i != missing {
					one := backend.AcquireRequest{Key: &key, ID: holder, Lease: lease, Retention: lease, First: true}
					if r, err := l.Acquire(t.Context(), one); err != nil || r.Outcome != backend.OutcomeGranted {
						t.Fatalf("%+v, %v", r, err)
					}
				}
			}
			first := backend.AcquireRequest{Key: &key, ID: rand.Text(), Lease: lease, Retention: lease, First: true, Queue: true, Timeout: time.Second}
			refused, err := b.Acquire(t.Context(), first)
			if err != nil || !refused.Withdraw || refused.Home == 0 || refused.Home == 1+missing {
				t.Fatalf("%+v, %v", refused, err)
			}
			b.Withdraw(backend.WithdrawRequest{Key: &key, ID: first.ID, Granted: true, Repeated: true})
			synctest.Wait()
			next := first
			next.ID, next.Home = rand.Text(), refused.Home
			if r, err := b.Acquire(t.Context(), next); err != nil || r.Outcome != backend.OutcomeBusy || r.Withdraw || r.Queue != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if s, err := links[missing].Inspect(t.Context(), &key, backend.NoRecord); err != nil || s.State != backend.StateFree {
				t.Errorf("it took the vote of a server that could not make it the holder: %v, %v", s.State, err)
			}
			for i, l := range links {
				if i != missing {
					_, _ = l.Release(t.Context(), backend.ReleaseRequest{Key: &key, ID: holder, Retention: time.Minute, Repeated: true})
				}
			}
			next.First = false
			if r, err := b.Acquire(t.Context(), next); err != nil || r.Outcome != backend.OutcomeGranted {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// A server that has restarted does not count for a renewal until the longest lease has passed, even if
// it has the lease: it may have granted a late copy of the request.
// Shows: P7
func TestRestartedServerKeepsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, servers, links := open(t)
		key, id, _ := acquire(t, b, "k")
		synctest.Wait() // until the third one has granted it
		links[0].cut = true
		renew := func() backend.RenewReply {
			return b.Renew(t.Context(), []backend.RenewRequest{{Key: key, ID: id, Lease: lease, Retention: lease + time.Minute}})[0]
		}
		if r := renew(); r.Err != nil || r.Verdict != backend.VerdictKept {
			t.Errorf("two servers: %+v", r)
		}
		if err := servers.Connected(2, backend.ServerInfo{RunID: rand.Text()}); err != nil {
			t.Fatal(err)
		}
		if r := renew(); r.Err == nil || !strings.Contains(r.Err.Error(), "restarted") {
			t.Errorf("one of two has restarted: %+v", r)
		}
		if r, _ := b.Extend(t.Context(), backend.RenewRequest{Key: key, ID: id, Lease: lease, Retention: lease + time.Minute}); r.Err != nil {
			t.Errorf("all reply, and one has restarted: %+v", r)
		}
	})
}

// Many grants in a short time put the token of another key at most a second ahead of the clock. A free
// key forgets its token after a minute, and then the clock must have passed it.
// Shows: P7
func TestTokensStayNearTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := open(t)
		for range 3000 {
			key, id, reply := acquire(t, b, "busy")
			if _, err := b.Release(t.Context(), backend.ReleaseRequest{Key: key, ID: id, Token: reply.Token, Retention: time.Minute, Repeated: true}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		_, _, reply := acquire(t, b, "other")
		if ahead := time.Duration(reply.Token-time.Now().UnixMicro()) * time.Microsecond; ahead > 1100*time.Millisecond {
			t.Errorf("the token is %v ahead", ahead)
		}
	})
}

// A server that has restarted does not vote sooner because what an earlier run said is read late, or
// because its next start loses nothing. A server that already ran when another one replied at its
// address has not restarted, but has none of the leases.
// Shows: P7
func TestServersVoteNoSooner(t *testing.T) {
	young, old := backend.ServerInfo{RunID: "young"}, backend.ServerInfo{RunID: "old", Age: time.Hour}
	for name, starts := range map[string][]backend.ServerInfo{
		"read late":              {young, old},
		"durable after a loss":   {young, {RunID: "durable", Durable: true}},
		"another server":         {old},
		"another durable server": {{RunID: "durable", Age: 2 * time.Second, Durable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { votesLate(t, starts) })
		})
	}
}

// votesLate fails if two of three servers vote after these starts.
func votesLate(t *testing.T, starts []backend.ServerInfo) {
	t.Helper()
	b, servers, _ := open(t)
	acquire(t, b, "other")
	synctest.Wait() // until each server has replied
	time.Sleep(time.Second)
	for _, info := range starts {
		for i, of := range []string{"a", "b"} {
			one := info
			one.RunID += of
			if err := servers.Connected(i, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	key := b.Key(backend.KindExclusive, "k")
	r := backend.AcquireRequest{Key: &key, ID: rand.Text(), Lease: lease, Retention: lease, First: true, Timeout: time.Second}
	if reply, err := b.Acquire(t.Context(), r); err == nil || !strings.Contains(err.Error(), "votes in 30.3s") {
		t.Errorf("two of three vote: outcome %v, %v", reply.Outcome, err)
	}
}

// A restart loses nothing of a server that keeps its data, so it votes at once, also if the clocks of
// server and process advance at different rates.
func TestDurableServerVotesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, servers, _ := open(t)
		acquire(t, b, "other")
		synctest.Wait()
		time.Sleep(10 * time.Second)
		for i, id := range []string{"a", "b"} {
			if err := servers.Connected(i, backend.ServerInfo{RunID: id, Age: 10*time.Second + 50*time.Millisecond, Durable: true}); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, b, "k")
	})
}

// Drain waits until each server has replied to the release of a hold, not only the majority that ended
// it. Otherwise the end of the process leaves the grant on the others, and the failure of another
// server blocks the key until the end of the lease.
func TestDrainWaitsForEachRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, links := open(t)
		key, id, reply := acquire(t, b, "k")
		synctest.Wait()
		links[2].slow = 300 * time.Millisecond
		if r, err := b.Release(t.Context(), backend.ReleaseRequest{Key: key, ID: id, Token: reply.Token, Retention: time.Minute, Repeated: true}); err != nil || !r.Released {
			t.Fatalf("%+v, %v", r, err)
		}
		start := time.Now()
		b.Drain(t.Context())
		for i, l := range links {
			if s, err := l.Inspect(t.Context(), key, backend.NoRecord); err != nil || s.State != backend.StateFree {
				t.Errorf("server %d has state %v, %v", i, s.State, err)
			}
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// Drain does not wait for one server that is away. For two of three it waits a second, and not until
// ctx ends, because they may be away for long.
func TestDrainWithServersAway(t *testing.T) {
	for away, want := range []time.Duration{0, 0, time.Second, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b, _, links := open(t)
			for _, l := range links[:away] {
				l.cut = true
			}
			key := b.Key(backend.KindExclusive, "k")
			_, err := b.Acquire(t.Context(), backend.AcquireRequest{Key: &key, ID: rand.Text(), Lease: lease, Retention: lease, First: true, Timeout: time.Second})
			if failed := err != nil; failed != (away > 1) {
				t.Errorf("%d away: %v", away, err)
			}
			synctest.Wait()
			start := time.Now()
			b.Drain(t.Context())
			if took := time.Since(start); took != want {
				t.Errorf("%d away: took %v", away, took)
			}
		})
	}
}
