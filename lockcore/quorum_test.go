package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	spaces "github.com/holdfast-go/holdfast/internal/backend/memory"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
	"github.com/holdfast-go/holdfast/lockcore"
)

// server is a master in memory that can fail.
type server struct {
	space *spaces.Space
	mu    sync.Mutex
	mode  mode
}

type mode int

const (
	well      mode = iota
	away           // requests fail at once
	silent         // requests are lost, and fail after their time limit
	deafening      // requests take effect, and their replies are lost
)

func (s *server) set(m mode) { s.mu.Lock(); s.mode = m; s.mu.Unlock() }
func (s *server) is() mode   { s.mu.Lock(); defer s.mu.Unlock(); return s.mode }

// wipe loses all data. A restarted server does not vote until the longest lease has passed.
func (s *server) wipe(t *testing.T) {
	t.Helper()
	space, err := spaces.NewSpace(0)
	ok(t, err)
	s.mu.Lock()
	s.space = space
	s.mu.Unlock()
}

var errAway = errors.New("server away")

// remote is a backend of one Locker on a server. Only the requests of the engine fail.
type remote struct {
	*spaces.Backend
	*server
	o    backend.Options
	made map[*spaces.Space]*spaces.Backend
}

func (r *remote) now() *spaces.Backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.made[r.space]
	if b == nil {
		b, _ = spaces.New(spaces.Options{Options: r.o, Space: r.space})
		r.made[r.space] = b
	}
	return b
}

// through sends a request, which takes a moment each way.
func through[T any](r *remote, limit time.Duration, f func(*spaces.Backend) (T, error)) (v T, err error) {
	time.Sleep(rand.N(time.Millisecond))
	switch r.is() {
	case well:
	case away:
		return v, errAway
	case silent:
		time.Sleep(limit)
		return v, errAway
	case deafening:
		_, _ = f(r.now())
		time.Sleep(limit)
		return v, errAway
	}
	v, err = f(r.now())
	time.Sleep(rand.N(time.Millisecond))
	return v, err
}

func (r *remote) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	sent := time.Now()
	reply, err := through(r, q.Timeout, func(b *spaces.Backend) (backend.AcquireReply, error) { return b.Acquire(ctx, q) })
	reply.Sent, reply.Repeated = sent, reply.Repeated || err != nil
	return reply, err
}

func (r *remote) Renew(ctx context.Context, qs []backend.RenewRequest) []backend.RenewReply {
	replies, err := through(r, 250*time.Millisecond, func(b *spaces.Backend) ([]backend.RenewReply, error) { return b.Renew(ctx, qs), nil })
	if err != nil {
		replies = make([]backend.RenewReply, len(qs))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (r *remote) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := through(r, 250*time.Millisecond, func(b *spaces.Backend) (backend.ReleaseReply, error) { return b.Release(ctx, q) })
	reply.Repeated = reply.Repeated || err != nil
	return reply, err
}

// retry repeats a request in the background until it takes effect.
func (r *remote) retry(f func(*spaces.Backend)) {
	go func() {
		for {
			select {
			case <-r.o.Closing:
				return
			case <-time.After(rand.N(5 * time.Millisecond)):
			}
			if m := r.is(); m == well || m == deafening {
				f(r.now())
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

func (r *remote) Withdraw(q backend.WithdrawRequest) {
	r.retry(func(b *spaces.Backend) { b.Withdraw(q) })
}

func (r *remote) ReleaseLater(q backend.ReleaseRequest, until time.Time) {
	r.retry(func(b *spaces.Backend) { b.ReleaseLater(q, until) })
}

func (r *remote) Hurry(string)          {}
func (r *remote) Report()               {}
func (r *remote) Drain(context.Context) {}
func (r *remote) Close()                {}
func (r *remote) Permanent(error) bool  { return false }
func (r *remote) Listen(ctx context.Context, on func(backend.Notification)) {
	for ctx.Err() == nil { // a wipe ends the subscription
		b := r.now()
		sub, end := context.WithCancel(ctx)
		go func() {
			for sub.Err() == nil && r.now() == b {
				time.Sleep(10 * time.Millisecond)
			}
			end()
		}()
		b.Listen(sub, on)
		end()
	}
}

type servers []*server

func newServers(t *testing.T, n int) servers {
	t.Helper()
	list := make(servers, n)
	for i := range list {
		list[i] = new(server)
		list[i].wipe(t)
	}
	return list
}

func (s servers) locker(t *testing.T, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.NewOnMasters(o, len(s), func(i int, common backend.Options) quorum.Master {
		r := &remote{server: s[i], o: common, made: map[*spaces.Space]*spaces.Backend{}}
		r.Backend = r.now()
		return r
	})
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
		time.Sleep(time.Second) // for the goroutines of remote
	})
	return l
}

// register refuses smaller tokens, and notes holds that overlap.
type register struct {
	*testing.T
	inside atomic.Int32
	last   atomic.Int64
	holds  atomic.Int64
}

func (r *register) hold(le *lockcore.Lease, stay time.Duration) {
	if r.inside.Add(1) > 1 {
		r.Errorf("an overlap after %d holds", r.holds.Load())
	}
	if last := r.last.Swap(le.Token()); last >= le.Token() {
		r.Errorf("token %d after %d", le.Token(), last)
	}
	r.holds.Add(1)
	select {
	case <-time.After(stay):
	case <-le.Context().Done():
	}
	r.inside.Add(-1)
}

// A key is held by one call at a time, whatever happens to a minority of the servers, and the calls
// go on.
// Shows: P7
func TestQuorumMinority(t *testing.T) {
	for n := 3; n <= 5; n += 2 {
		synctest.Test(t, func(t *testing.T) {
			s, reg := newServers(t, n), &register{T: t}
			var wg sync.WaitGroup
			end := time.Now().Add(time.Minute)
			for range 4 {
				l := s.locker(t, lockcore.Options{Terms: lockcore.Terms{Lease: 2 * time.Second, Wait: 20 * time.Second}})
				for range 3 {
					wg.Go(func() {
						for time.Now().Before(end) {
							le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
							if err != nil {
								t.Errorf("at %v: %v", time.Until(end), err)
								return
							}
							reg.hold(le, rand.N(20*time.Millisecond))
							_ = le.Release(t.Context())
						}
					})
				}
			}
			for time.Now().Before(end) {
				ill := rand.Perm(n)[:n/2]
				for _, i := range ill {
					s[i].set(mode(1 + rand.IntN(3)))
					if rand.IntN(3) == 0 {
						s[i].set(away)
						s[i].wipe(t)
					}
				}
				time.Sleep(2*time.Second + rand.N(2*time.Second)) // also the time for which a wiped server does not vote
				for _, i := range ill {
					s[i].set(well)
				}
				time.Sleep(rand.N(2 * time.Second))
			}
			wg.Wait()
			t.Logf("%d servers: %d holds", n, reg.holds.Load())
		})
	}
}

// A failing server costs no throughput, and processes take turns, also if it has the queue of the key.
// Shows: P7
func TestQuorumTurns(t *testing.T) {
	const most = 20 * time.Second
	holds := func(t *testing.T, ill int, m mode) (all int, least int) {
		s, reg := newServers(t, 3), &register{T: t}
		if ill >= 0 {
			s[ill].set(m)
		}
		var each [4]int
		var wg sync.WaitGroup
		end := time.Now().Add(most)
		for p := range each {
			l := s.locker(t, lockcore.Options{Terms: lockcore.Terms{Lease: 2 * time.Second, Wait: most}})
			var mu sync.Mutex
			for range 3 {
				wg.Go(func() {
					for time.Now().Before(end) {
						le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						each[p]++
						mu.Unlock()
						reg.hold(le, rand.N(20*time.Millisecond))
						_ = le.Release(t.Context())
					}
				})
			}
		}
		wg.Wait()
		for _, n := range each {
			all += n
		}
		return all, slices.Min(each[:])
	}
	var without int
	synctest.Test(t, func(t *testing.T) { without, _ = holds(t, -1, well) })
	for ill := range 3 {
		for _, m := range []mode{silent, deafening, away} {
			synctest.Test(t, func(t *testing.T) {
				all, least := holds(t, ill, m)
				if all < without*3/4 || least < all/8 {
					t.Errorf("server %d is %d: %d holds, of %d without; a process has %d", ill, m, all, without, least)
				}
			})
		}
	}
}

// The token of a grant is later than its request, also if the servers granted an earlier copy of it.
// Shows: P7
func TestQuorumTokenOfRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 3)
		l := s.locker(t, lockcore.Options{})
		for _, one := range s {
			one.set(deafening)
		}
		var well time.Time
		time.AfterFunc(time.Second, func() {
			well = time.Now()
			for _, one := range s {
				one.set(0)
			}
		})
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		if le.Token() < well.UnixMicro() {
			t.Errorf("token %d, the request was sent after %d", le.Token(), well.UnixMicro())
		}
		ok(t, le.Release(t.Context()))
	})
}

// Without a majority no call gets the key. With it again, the calls go on, and tokens have grown.
// Shows: P7
func TestQuorumMajorityAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 3)
		l := s.locker(t, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		first := le.Token()
		ok(t, le.Release(t.Context()))
		s[0].set(silent)
		s[2].set(away)
		if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: 3 * time.Second}); !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("without a majority: %v", err)
		}
		s[0].set(well)
		le, err = l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		if h, held := access.HoldOf(le.Context(), "k"); !held || h.Token <= first {
			t.Errorf("token %d after %d", h.Token, first)
		}
		ok(t, le.Release(t.Context()))
	})
}

// A server that grants a request after the majority keeps the grant, also if the request was in a
// remote queue and a server has failed lately. So the lease outlives the failure of any minority.
func TestQuorumLateGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 5)
		o := lockcore.Options{Terms: lockcore.Terms{Lease: 10 * time.Second}}
		a, b := s.locker(t, o), s.locker(t, o)
		first, err := b.Acquire(t.Context(), "first", lockcore.Terms{})
		ok(t, err)
		s[0].set(away)
		time.AfterFunc(time.Second, func() { s[0].set(well); ok(t, first.Release(t.Context())) })
		le, err := a.Acquire(t.Context(), "first", lockcore.Terms{}) // opens the subscription
		ok(t, err)
		ok(t, le.Release(t.Context()))
		for i := range 20 {
			name := fmt.Sprint("k", i)
			le, err := a.Acquire(t.Context(), name, lockcore.Terms{})
			ok(t, err)
			time.Sleep(time.Second)
			key, held := access.Of(a).Backend.Key(backend.KindExclusive, name), 0
			for _, one := range s {
				m, err := spaces.New(spaces.Options{Space: one.space})
				ok(t, err)
				status, err := m.Inspect(t.Context(), &key, backend.NoRecord)
				ok(t, err)
				if status.State == backend.StateHeld {
					held++
				}
			}
			if held != len(s) {
				t.Errorf("%s is held on %d of %d servers", name, held, len(s))
			}
			ok(t, le.Release(t.Context()))
		}
	})
}
