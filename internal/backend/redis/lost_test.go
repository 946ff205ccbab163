package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// acquireSent acquires a key in a bubble in which one network is faulty. It returns how long that
// took, and how many commands acquired.
func acquireSent(t *testing.T, terms lockcore.Terms, disturb func(*faulty.Network)) (took time.Duration, sent int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		ok(t, w.Must(l.Acquire(t.Context(), "warm", terms)).Release(t.Context()))
		count.Reset()
		disturb(faults)
		start := time.Now()
		le := w.Must(l.Acquire(t.Context(), "k", terms))
		took, sent = time.Since(start), count.Count("acquire")
		if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("the other process: %v", err)
		}
		faults.Heal()
		faults.Delay(0)
		ok(t, le.Release(t.Context()))
		time.Sleep(5 * time.Second) // late commands and withdrawals arrive
		ok(t, w.Must(other.Acquire(t.Context(), "k", noWait)).Release(t.Context()))
	})
	return took, sent
}

// The request of a call whose reply is lost is sent again within 0.3 s.
// Shows: R6
func TestLostReplyOfAcquire(t *testing.T) {
	testlevel.InMemory(t)
	for name, plant := range faultKinds {
		t.Run(name, func(t *testing.T) {
			for _, wait := range []time.Duration{lockcore.NoWait, 10 * time.Second, lockcore.Forever} {
				took, sent := acquireSent(t, lockcore.Terms{Wait: wait}, func(f *faulty.Network) { plant(f, faulty.Script("acquire")) })
				if took > 300*time.Millisecond || sent != 2 {
					t.Errorf("Wait %v: %d commands in %v, want 2 within 0.3 s", wait, sent, took)
				}
			}
		})
	}
}

// The lease counts from the second send, so the context ends before the lease that it granted, and
// the first send does not shorten it.
// Shows: R6
func TestLostReplyLease(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		terms := lockcore.Terms{Lease: 3 * time.Second}
		ok(t, w.Must(l.AcquireFixed(t.Context(), "warm", terms)).Release(t.Context()))
		start := time.Now()
		<-w.Must(l.AcquireFixed(t.Context(), "whole", terms)).Context().Done()
		whole := time.Since(start)
		lost := faults.LoseReply(faulty.Script("acquire"))
		start = time.Now()
		le := w.Must(l.AcquireFixed(t.Context(), "k", terms))
		<-lost.Replied()
		sent := time.Now() // nothing takes time in this network
		<-le.Context().Done()
		h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
		if took := time.Since(sent); err != nil || took != whole || h.State != lockcore.StateHeld || h.Remaining <= 0 {
			t.Errorf("the context ended after %v, want %v; %v, %v are left, %v", took, whole, h.State, h.Remaining, err)
		}
		if sent.Sub(start) < 200*time.Millisecond {
			t.Error("inconclusive")
		}
	})
}

// A slow server gets one command for each call.
// Shows: R6
func TestLostReplySlowServer(t *testing.T) {
	testlevel.InMemory(t)
	heal := func(f *faulty.Network) { time.AfterFunc(800*time.Millisecond, f.Heal) }
	for name, disturb := range map[string]func(*faulty.Network){
		"each reply takes 400 ms":  func(f *faulty.Network) { f.Delay(200 * time.Millisecond) },
		"each reply takes 900 ms":  func(f *faulty.Network) { f.Delay(450 * time.Millisecond) },
		"no request for 800 ms":    func(f *faulty.Network) { f.Silence(); heal(f) },
		"no reply for 800 ms":      func(f *faulty.Network) { f.SilenceReplies(); heal(f) },
		"stalls for 800 ms":        func(f *faulty.Network) { stall(f, 800*time.Millisecond) },
		"stalls until it is asked": func(f *faulty.Network) { stall(f, 200*time.Millisecond) },
		"stalls for 201 ms":        func(f *faulty.Network) { stall(f, 201*time.Millisecond) },
		"stalls for 290 ms":        func(f *faulty.Network) { stall(f, 290*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			if took, sent := acquireSent(t, lockcore.Terms{}, disturb); sent != 1 {
				t.Errorf("%d commands in %v", sent, took)
			}
		})
	}
}

// stall makes a server that accepts connections, and executes nothing for d.
func stall(f *faulty.Network, d time.Duration) {
	end := time.Now().Add(d)
	f.DelayFunc(func() time.Duration { return max(time.Until(end), 0) })
}

// A server is slow for each of many calls, one after another. It gets one command for each of them,
// and one PING.
// Shows: R6
func TestLostReplySlowForLong(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, count := w.Locker(lockcore.Options{})
		ok(t, w.Must(l.Acquire(t.Context(), "warm", noWait)).Release(t.Context()))
		count.Reset()
		conns := faults.Conns()
		faults.Delay(200 * time.Millisecond)
		for i := range 20 {
			ok(t, w.Must(l.Acquire(t.Context(), fmt.Sprint(i), noWait)).Release(t.Context()))
			if n := faults.Conns() - conns; i > 0 && n > 1 {
				t.Errorf("%d new connections", n)
			}
		}
		if got := count.String(); got != "acquire 20, release 20" {
			t.Error(got)
		}
	})
}

// An acquire arrives late, also at each moment around the repeat. The key is granted once.
// Shows: R6
func TestLostReplyLateAcquire(t *testing.T) {
	testlevel.InMemory(t)
	for late := 195 * time.Millisecond; late <= 270*time.Millisecond; late += 5 * time.Millisecond {
		for _, more := range []time.Duration{-1, 0, 1} {
			took, sent := acquireSent(t, lockcore.Terms{}, func(f *faulty.Network) {
				held := f.Hold(faulty.Script("acquire"))
				time.AfterFunc(late+more, held.Deliver)
			})
			if want := late+more < 220*time.Millisecond; took > 300*time.Millisecond || (sent == 1) != want && late+more != 220*time.Millisecond {
				t.Errorf("%v late: %d commands in %v", late+more, sent, took)
			}
		}
	}
}

// After a lost reply the next one has the whole time of a call, so a server that answers PING but no
// script gets one more command.
// Shows: R6
func TestLostReplyTwice(t *testing.T) {
	testlevel.InMemory(t)
	took, sent := acquireSent(t, lockcore.Terms{}, func(f *faulty.Network) {
		f.LoseReply(faulty.Nth(1, faulty.Script("acquire")))
		f.LoseReply(faulty.Nth(2, faulty.Script("acquire")))
	})
	if took < 1200*time.Millisecond || took > 1400*time.Millisecond || sent != 3 {
		t.Errorf("%d commands in %v", sent, took)
	}
}

// The connections of a client of the user are not known, so the time of the call ends the wait for
// its reply.
// Shows: R6
func TestLostReplyForeignClient(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		l, faults, _ := away(t, true)
		ok(t, newLease(t, l, "warm").Release(t.Context()))
		faults.LoseReply(faulty.Script("acquire"))
		start := time.Now()
		ok(t, newLease(t, l, "k").Release(t.Context()))
		if took := time.Since(start); took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func newLease(t *testing.T, l *lockcore.Locker, key string) *lockcore.Lease {
	t.Helper()
	le, err := l.Acquire(t.Context(), key, lockcore.Terms{})
	ok(t, err)
	return le
}

// WAIT takes longer than a reply may. The server is not asked, because the reply of the script has
// arrived before.
// Shows: R6
func TestLostReplyOfWait(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w, pings := realWorld(t), new(atomic.Int64)
	o := w.Options()
	dial := redis.NewDialer(o)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return pingConn{conn, pings}, err
	}
	l := lockerOn(t, redis.NewClient(o), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1, Timeout: 600 * time.Millisecond}})
	start, control := time.Now(), redistest.NewControl(t)
	_, err := l.Acquire(t.Context(), "k", noWait)
	if took := time.Since(start); !errors.Is(err, lockcore.ErrUnavailable) || took < 600*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
	if n := pings.Load(); n > 0 && control.Late(start) < 10*time.Millisecond {
		t.Errorf("the server was asked %d times", n)
	}
}

// pingConn counts PING.
type pingConn struct {
	net.Conn
	pings *atomic.Int64
}

func (c pingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("PING")) {
		c.pings.Add(1)
	}
	return c.Conn.Write(b)
}

// A real server stalls for 800 ms. It gets one command.
// Shows: R6
func TestLostReplySlowServerReal(t *testing.T) {
	t.Parallel()
	s, count := redistest.Real(t), new(redistest.Counter)
	o := s.Options()
	o.Dialer = count.Dial(redis.NewDialer(o))
	l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
	ok(t, newLease(t, l, "warm").Release(t.Context()))
	count.Reset()
	s.Pause()
	time.AfterFunc(800*time.Millisecond, s.Resume)
	start, control := time.Now(), redistest.NewControl(t)
	le := newLease(t, l, "k")
	if n, took := count.Count("acquire"), time.Since(start); n != 1 && took < time.Second && control.Late(start) < 10*time.Millisecond {
		t.Errorf("%d commands in %v", n, took)
	}
	ok(t, le.Release(t.Context()))
}

// On a server, and on a Cluster, the request is sent again within 0.3 s.
// Shows: R6
func TestLostReplyOfAcquireReal(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T, *faulty.Network, *redistest.Counter) redis.UniversalClient{
		"server": func(t *testing.T, f *faulty.Network, c *redistest.Counter) redis.UniversalClient {
			o := redistest.Real(t).Options()
			o.Dialer = c.Dial(f.Dial(redis.NewDialer(o)))
			return redis.NewClient(o)
		},
		"cluster": func(t *testing.T, f *faulty.Network, c *redistest.Counter) redis.UniversalClient {
			o := redistest.Cluster(t).Options()
			o.Dialer = c.Dial(f.Dial(redis.NewDialer(&redis.Options{DialTimeout: time.Second})))
			return redis.NewClusterClient(o)
		},
	} {
		for _, alone := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " NoGroups=", alone), func(t *testing.T) {
				t.Parallel()
				faults, count := faulty.New(t), new(redistest.Counter)
				rdb := client(t, faults, count)
				l, err := lockcore.New(rdb, lockcore.Options{NoGroups: alone})
				ok(t, err)
				t.Cleanup(func() { _ = l.Close(context.Background()); _ = rdb.Close() })
				for i := range 20 {
					ok(t, newLease(t, l, fmt.Sprint("warm", i)).Release(t.Context()))
				}
				count.Reset()
				lost := faults.LoseReply(faulty.Script("acquire"))
				start, control := time.Now(), redistest.NewControl(t)
				le := newLease(t, l, "k")
				took := time.Since(start)
				select {
				case <-lost.Replied():
				default:
					t.Error("no reply was lost")
				}
				if n := count.Count("acquire"); n < 2 || took > 300*time.Millisecond+control.Late(start) {
					t.Errorf("%d commands in %v", n, took)
				}
				ok(t, le.Release(t.Context()))
				if h, err := l.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateFree {
					t.Errorf("after the release the key is %v, %v", h.State, err)
				}
			})
		}
	}
}
