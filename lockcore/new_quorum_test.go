package lockcore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// master is a server in memory behind a network.
type master struct {
	*redistest.Memory
	*faulty.Network
	client *goredis.Client
}

type masters []*master

// newMasters returns three servers with different addresses.
func newMasters(t *testing.T) masters { t.Helper(); return mastersOf(t, 3) }

func mastersOf(t *testing.T, n int) masters {
	t.Helper()
	var s masters
	for i := range n {
		m := &master{Memory: redistest.Bubble(t), Network: faulty.New(t)}
		m.client = m.Client(t, func(o *goredis.Options) { o.Addr, o.Dialer = fmt.Sprintf("10.0.0.%d:6379", i+1), m.Dial(o.Dialer) })
		s = append(s, m)
	}
	return s
}

func (s masters) clients() (all []*goredis.Client) {
	for _, m := range s {
		all = append(all, m.client)
	}
	return all
}

// locker returns a Locker on the servers.
func (s masters) locker(t *testing.T, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.NewQuorum(s.clients(), o)
	ok(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// restart ends the connections to a server, which from now on says that it has just started.
func (m *master) restart(wipe bool) {
	if wipe {
		m.Redis.FlushAll()
	}
	m.Identify(func(id *pipe.Identity) { id.RunID, id.Started = rand.Text(), time.Now() })
	m.Cut()
}

// What cannot vote is refused by name when the Locker is made.
func TestNewQuorumRefuses(t *testing.T) {
	sentinel := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer func() { _ = sentinel.Close() }()
	for want, change := range map[string]func(masters, *[]*goredis.Client, *lockcore.Options){
		"there are 2 masters, must be 3, 5 or 7": func(_ masters, c *[]*goredis.Client, _ *lockcore.Options) { *c = (*c)[:2] },
		"there are 4 masters, must be 3, 5 or 7": func(_ masters, c *[]*goredis.Client, _ *lockcore.Options) { *c = append(*c, (*c)[0]) },
		"masters[1] is nil":                      func(_ masters, c *[]*goredis.Client, _ *lockcore.Options) { (*c)[1] = nil },
		"masters[2] is a failover client":        func(_ masters, c *[]*goredis.Client, _ *lockcore.Options) { (*c)[2] = sentinel },
		"ReplicaAcks is set":                     func(_ masters, _ *[]*goredis.Client, o *lockcore.Options) { o.ReplicaAcks.N = 1 },
		"Options.Prefix is \"a b\"":              func(_ masters, _ *[]*goredis.Client, o *lockcore.Options) { o.Prefix = "a b" },
		"10.0.0.2:6379 is a replica": func(s masters, _ *[]*goredis.Client, _ *lockcore.Options) {
			s[1].Identify(func(id *pipe.Identity) { id.Role = "slave" })
		},
		"10.0.0.3:6379 is part of a Cluster": func(s masters, _ *[]*goredis.Client, _ *lockcore.Options) {
			s[2].Identify(func(id *pipe.Identity) { id.Mode = "cluster" })
		},
		"10.0.0.1:6379 is a Sentinel": func(s masters, _ *[]*goredis.Client, _ *lockcore.Options) {
			s[0].Identify(func(id *pipe.Identity) { id.Mode = "sentinel" })
		},
		"are the same server": func(s masters, _ *[]*goredis.Client, _ *lockcore.Options) {
			for _, one := range s[:2] {
				one.Identify(func(id *pipe.Identity) { id.RunID = "same" })
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMasters(t)
			c, o := s.clients(), lockcore.Options{}
			change(s, &c, &o)
			l, err := lockcore.NewQuorum(c, o)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("NewQuorum returns %v, want %q", err, want)
			}
			if l != nil {
				t.Error("and a Locker")
			}
		})
	}
}

// A server that was away when the Locker was made, and then turns out to be a replica, does not vote.
// If that is a minority, the event says so. If it is the majority, each call says so.
func TestNewQuorumRefusesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, heard := newMasters(t), new(locktest.Recorder)
		for _, m := range s[:2] {
			m.Down()
			m.Identify(func(id *pipe.Identity) { id.Role = "slave" })
		}
		l := s.locker(t, lockcore.Options{Observer: heard})
		s[0].Heal()
		s[1].Heal()
		_, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		if !errors.Is(err, lockcore.ErrUnsupported) || !strings.Contains(err.Error(), "10.0.0.1:6379 is a replica") {
			t.Errorf("with two replicas: %v", err)
		}
		s[1].Identify(func(id *pipe.Identity) { id.Role = "master" })
		heard.Reset()
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ok(t, le.Release(t.Context()))
		s[0].Identify(func(id *pipe.Identity) { id.Role = "master" })
		for range 2 {
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
			ok(t, err)
			ok(t, le.Release(t.Context()))
			time.Sleep(time.Second)
		}
		if got := locktest.EventsOf[event.ServerRecovered](heard); len(got) != 2 {
			t.Errorf("%v", got)
		}
	})
}

// The grants of a restarted server do not count until the longest lease has passed, even if it has all
// its data.
// Shows: P7
func TestNewQuorumRestart(t *testing.T) {
	for _, wipe := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newMasters(t)
			terms := lockcore.Options{Terms: lockcore.Terms{Lease: 10 * time.Second, Wait: 2 * time.Second}}
			a, b := s.locker(t, terms), s.locker(t, terms)
			s[2].Down()
			le, err := a.Acquire(t.Context(), "k", lockcore.Terms{}) // on servers 0 and 1
			ok(t, err)
			s[2].Heal()
			s[1].Down() // the holder does not hear of the restart
			s[1].restart(wipe)
			s[0].Down()
			s[1].Heal()
			if _, err := b.Acquire(t.Context(), "k", lockcore.Terms{}); !errors.Is(err, lockcore.ErrNotRun) || wipe && !strings.Contains(err.Error(), "has restarted") {
				t.Errorf("servers 1 and 2 without memory of the lease: %v", err)
			}
			s[0].Heal()
			_ = le.Release(t.Context())
			time.Sleep(8 * time.Second)
			s[0].Down()
			le, err = b.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second})
			ok(t, err)
			ok(t, le.Release(t.Context()))
		})
	}
}

// Of the servers that have the rest of a MinHold, a minority may lose it. Servers without persistence
// that restart one after the other lose it, if it is longer than the lease.
func TestQuorumMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		l := s.locker(t, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: time.Hour})
		ok(t, err)
		time.Sleep(time.Second) // until all servers have granted it: a release cools no key that the server has not granted
		ok(t, le.Release(t.Context()))
		time.Sleep(time.Second) // until all servers have the cooldown
		for _, m := range s[:2] {
			if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Second}); !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("within MinHold: %v", err)
			}
			m.restart(true)
			time.Sleep(time.Minute)
		}
		le, err = l.Acquire(t.Context(), "k", lockcore.Terms{Wait: 5 * time.Second})
		ok(t, err)
		ok(t, le.Release(t.Context()))
	})
}

// A renewal reaches each server, also one that replies after the majority and has lost its connection.
func TestQuorumRenewsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMasters(t)
		v, l := s.votes(t), s.locker(t, lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}})
		s[2].Delay(20 * time.Millisecond)
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		for range 10 {
			v.expect(t, "k", l, 3)
			s[2].Cut()
		}
		ok(t, le.Release(t.Context()))
	})
}

// A server that does not reply delays no release, whether the key goes to the next call or is freed.
// Shows: P7
func TestQuorumReleaseSilentServer(t *testing.T) {
	for silent := range 3 { // one of them has the remote queue
		synctest.Test(t, func(t *testing.T) {
			s := newMasters(t)
			l := s.locker(t, lockcore.Options{})
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
			ok(t, err)
			time.Sleep(2 * time.Second) // so that the connections and the subscription are there
			ok(t, le.Release(t.Context()))
			s[silent].Silence()
			var calls sync.WaitGroup
			for range 5 {
				calls.Go(func() {
					le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second})
					ok(t, err)
					time.Sleep(10 * time.Millisecond) // longer than a batch, so the next call needs the servers
					begin := time.Now()
					ok(t, le.Release(t.Context()))
					if took := time.Since(begin); took > 300*time.Millisecond {
						t.Errorf("server %d is silent: Release took %v", silent, took)
					}
				})
			}
			calls.Wait()
			s[silent].Heal()
		})
	}
}

// A server that does not reply is reported once, and once when it replies again.
func TestServerFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, heard := newMasters(t), new(locktest.Recorder)
		l := s.locker(t, lockcore.Options{Observer: heard})
		hold := func() {
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
			ok(t, err)
			time.Sleep(time.Second)
			ok(t, le.Release(t.Context()))
			time.Sleep(time.Second)
		}
		s[1].Silence()
		hold()
		hold()
		if got := locktest.EventsOf[event.ServerFailed](heard); len(got) != 1 || got[0].Server != "10.0.0.2:6379" || got[0].Err == nil {
			t.Errorf("failed: %v", got)
		}
		s[1].Heal()
		hold()
		hold()
		if got := locktest.EventsOf[event.ServerRecovered](heard); len(got) != 1 || got[0].Server != "10.0.0.2:6379" {
			t.Errorf("recovered: %v", got)
		}
	})
}

// What a majority of servers cannot do is refused without a command, with what to use instead.
func TestQuorumUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := newMasters(t).locker(t, lockcore.Options{})
		lease, err := l.Acquire(ctx, "k", lockcore.Terms{})
		ok(t, err)
		for want, call := range map[string]func() error{
			"once keys: use one Redis, or package sqlonce": func() error { _, _, err := l.Claim(ctx, "k", lockcore.Claim{}); return err },
			"shares: use one Redis":                        func() error { _, err := l.AcquireShare(ctx, "s", lockcore.Limit{N: 2}, lockcore.Terms{}); return err },
			"a lease of 1m0s: use at most 30s":             func() error { _, err := l.Acquire(ctx, "m", lockcore.Terms{Lease: time.Minute}); return err },
			"a lease of 2m0s: use at most 30s":             func() error { return lease.Extend(ctx, 2*time.Minute) },
			"tickets: use one Redis":                       func() error { _, err := lease.Ticket(ctx, time.Minute); return err },
		} {
			begin := time.Now()
			if err := call(); !errors.Is(err, lockcore.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if took := time.Since(begin); took > 0 {
				t.Errorf("%q took %v", want, took)
			}
		}
		ok(t, lease.Extend(ctx, 30*time.Second))
		ok(t, lease.Release(ctx))
	})
}

// A server that missed a release still has the hold that an operator saw. A revocation of that hold does not
// count as done if another hold has begun on a majority.
func TestRevokeIfUnchangedOnAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), newMasters(t)
		l := s.locker(t, lockcore.Options{})
		acquire := func() (*lockcore.Lease, lockcore.Holding) {
			le, err := l.Acquire(ctx, "k", lockcore.Terms{Wait: time.Minute})
			ok(t, err)
			synctest.Wait() // Acquire does not wait for the third
			seen, err := l.Inspect(ctx, event.KindExclusive, "k")
			if ok(t, err); seen.State != lockcore.StateHeld {
				t.Fatalf("%+v", seen)
			}
			return le, seen
		}
		const hash = "holdfast:2:x:{k}"
		first, seen := acquire()
		stale := s[2].client.HGetAll(ctx, hash).Val()
		ok(t, first.Release(ctx))
		synctest.Wait()
		ok(t, s[2].client.HSet(ctx, hash, stale).Err())
		second, now := acquire()
		if err := l.RevokeIfUnchanged(ctx, event.KindExclusive, "k", seen); !errors.Is(err, lockcore.ErrChanged) {
			t.Errorf("the hold before: %v", err)
		}
		ok(t, l.RevokeIfUnchanged(ctx, event.KindExclusive, "k", now))
		<-second.Context().Done()
	})
}
