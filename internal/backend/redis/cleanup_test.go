package redis_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/cleanup"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/process"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// dropped returns how many cleanups the Locker has given up, and the last error.
func dropped(r *locktest.Recorder) (n int, err error) {
	for _, e := range locktest.EventsOf[event.CleanupFailed](r) {
		n, err = n+e.N, e.Err
	}
	return n, err
}

// waitingIn returns how many requests are in the queues of the keys.
func waitingIn(t *testing.T, rdb redis.UniversalClient, keys []string) (n int64) {
	t.Helper()
	pipe := rdb.Pipeline()
	var all []*redis.IntCmd
	for _, key := range keys {
		all = append(all, pipe.ZCard(t.Context(), storedNames(event.KindExclusive, key)[1]))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		n += c.Val()
	}
	return n
}

// pileUp puts n withdrawals into the queue of cleanups.
func pileUp(l *lockcore.Locker, n int) {
	b := access.Of(l).Backend
	for i := range n {
		key := b.Key(backend.KindExclusive, fmt.Sprint("pile", i))
		b.Withdraw(backend.WithdrawRequest{Key: &key, ID: rand.Text(), Retention: backend.FreeTTL})
	}
	b.Report()
}

// cleanups returns how many withdrawals and releases are not confirmed.
func cleanups(l *lockcore.Locker) int {
	return access.Of(l).Backend.(*redisbackend.Backend).Unconfirmed() //nolint:errcheck,forcetypeassert // these Lockers are on Redis
}

func keyNames(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	return keys
}

// transfer releases the keys that another Locker waits for. It returns how long each waiter waited
// after the release, sorted.
func transfer(t *testing.T, held map[string]*lockcore.Lease, keys []string, next *lockcore.Locker, before func()) []time.Duration {
	t.Helper()
	rdb, took := make([]time.Duration, len(keys)), make([]time.Time, len(keys))
	var wg sync.WaitGroup
	var waiting atomic.Int64
	for i, key := range keys {
		wg.Go(func() {
			waiting.Add(1)
			le, err := next.Acquire(t.Context(), key, lockcore.Terms{Wait: time.Minute})
			took[i] = time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			_ = le.Release(t.Context())
		})
	}
	eventually(t, "waiters", func() bool {
		for _, key := range keys {
			h, err := next.Inspect(t.Context(), event.KindExclusive, key)
			if err != nil || h.Queue < 1 || before != nil && h.Queue < 2 {
				return false
			}
		}
		return true
	})
	if before != nil {
		before()
	}
	for i, key := range keys {
		start := time.Now()
		if err := held[key].Release(t.Context()); err != nil {
			t.Error(err)
		}
		delete(held, key)
		rdb[i] = time.Duration(start.UnixNano())
	}
	wg.Wait()
	for i := range keys {
		rdb[i] = took[i].Sub(time.Unix(0, int64(rdb[i])))
	}
	slices.Sort(rdb)
	return rdb
}

// waiterTask is the task of manyWaiters: the address of Redis, and the number of keys.
type waiterTask struct {
	Addr string
	N    int
}

// manyWaiters is the other process of TestCleanupManyCanceled. It has a waiter on each of many
// keys, and cancels all of them when it reads a line from stdin. It ends when stdin ends.
func manyWaiters(c waiterTask, in *bufio.Scanner) error {
	l, err := lockcore.New(redis.NewClient(&redis.Options{Addr: c.Addr}), lockcore.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiters sync.WaitGroup
	for _, key := range keyNames(c.N) {
		waiters.Go(func() {
			le, err := l.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever})
			switch {
			case err == nil: // the key was released before the cancellation arrived
				_ = le.Release(ctx)
			case !errors.Is(err, context.Canceled):
				process.WriteLine(os.Stdout, fmt.Sprint("not canceled: ", err))
			}
		})
	}
	in.Scan() // or the test has ended
	cancel()
	waiters.Wait()
	in.Scan()
	return l.Close(context.Background())
}

// 5,000 waiters of one process on 5,000 keys are canceled at once. All leave the queues, and the
// next waiter of another process does not wait for the end of one of their reservations.
// Shows: R1
func TestCleanupManyCanceled(t *testing.T) {
	testlevel.Campaign(t)
	const n, sample = 5000, 200
	w, machine := realWorld(t), redistest.NewControl(t)
	holder, _, _ := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Minute}})
	next, _, _ := w.Locker(lockcore.Options{})
	keys := keyNames(n + sample)
	held := map[string]*lockcore.Lease{}
	for _, key := range keys {
		held[key] = w.Must(holder.Acquire(t.Context(), key, lockcore.Terms{}))
	}
	control := transfer(t, held, keys[n:], next, nil)
	keys = keys[:n]
	p, said := process.Listen[string](t, waiterTask{Addr: w.Redis.Options().Addr, N: n})
	eventually(t, "the queues", func() bool { return waitingIn(t, w.Redis, keys) == n })
	waits := transfer(t, held, keys[n-sample:], next, func() { p.Tell("") })
	at := func(all []time.Duration, p int) time.Duration { return all[len(all)*p/100] }
	t.Logf("wait after the release: p50 %v, p99 %v, max %v; control without canceled waiters: p50 %v, p99 %v, max %v",
		at(waits, 50), at(waits, 99), waits[sample-1], at(control, 50), at(control, 99), control[sample-1])
	if most := waits[sample-1]; most >= 500*time.Millisecond && most > 10*control[sample-1] {
		t.Errorf("a waiter waited %v for a canceled one", most)
	}
	left, start := int64(-1), time.Now()
	for left != 0 && time.Since(start) < 10*time.Second+machine.Late(start) {
		time.Sleep(20 * time.Millisecond)
		left = waitingIn(t, w.Redis, keys)
	}
	p.Close()
	for line := range said {
		t.Errorf("the process of the canceled waiters: %s", line)
	}
	if left != 0 {
		t.Errorf("%d canceled requests are still in the queues", left)
	}
	for _, le := range held {
		_ = le.Release(t.Context())
	}
}

// Redis is unavailable. No cleanup is dropped, however many there are. At most two pipelines of 100
// are sent a second, and all cleanups are confirmed soon after Redis replies again.
// Shows: R1
func TestCleanupKeptThroughOutage(t *testing.T) {
	ways := map[string]func(*faulty.Network){
		"refused": (*faulty.Network).Down, "black hole": (*faulty.Network).Silence, "replies lost": (*faulty.Network).SilenceReplies,
	}
	for way, goAway := range ways {
		for kind, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
			"own":     func(c *redis.Client) redis.UniversalClient { return c },
			"wrapper": func(c *redis.Client) redis.UniversalClient { return inWrapper(c) },
		} {
			t.Run(way+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n, seconds = 300, 20
					w, faults, count := newWorld(t), faulty.New(t), new(redistest.Counter)
					o := w.Options()
					o.Dialer = count.Dial(faults.Dial(o.Dialer))
					l := lockerOn(t, wrap(redis.NewClient(o)), lockcore.Options{})
					takeOnce(t, l, "warm")
					pileUp(l, 1) // loads the script
					time.Sleep(time.Second)
					goAway(faults)
					pileUp(l, n)
					time.Sleep(2 * time.Second)
					count.Reset()
					time.Sleep(seconds * time.Second)
					if sent := count.Count("leave"); sent > 2*seconds*100 {
						t.Errorf("%d withdrawals were sent in %d s, want at most two pipelines of 100 a second", sent, seconds)
					}
					if kept := cleanups(l); kept != n {
						t.Errorf("%d of %d cleanups are kept", kept, n)
					}
					faults.Heal()
					time.Sleep(2 * time.Second)
					if left := cleanups(l); left != 0 {
						t.Errorf("%d cleanups are still not confirmed", left)
					}
				})
			})
		}
	}
}

func closeNow(t *testing.T, l *lockcore.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = l.Close(ctx) // the test leaves leases on purpose
}

// A notification arrives for a request whose withdrawal is not confirmed. That withdrawal is sent
// next, however many are before it. The notification may arrive before, during or after the
// cancellation of its waiter.
// Shows: R1
func TestCleanupHurried(t *testing.T) {
	const ms = time.Millisecond
	steps := []time.Duration{-150 * ms, -120 * ms, -100 * ms, -60 * ms, -50 * ms, 0, 40 * ms, 50 * ms, 60 * ms, 100 * ms, 120 * ms}
	for _, after := range testlevel.Pick(t, []time.Duration{-120 * ms, 0, 120 * ms}, steps, steps) {
		synctest.Test(t, func(t *testing.T) {
			const n, oneWay = 800, 50 * time.Millisecond
			w := newWorld(t)
			holder, _, _ := w.Locker(lockcore.Options{})
			gone, slow, _ := w.Locker(lockcore.Options{})
			next, _, _ := w.Locker(lockcore.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			var waiters sync.WaitGroup
			held := w.Must(holder.Acquire(t.Context(), "k", lockcore.Terms{}))
			takeOnce(t, gone, "warm")
			waiters.Go(func() {
				if le, err := gone.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever}); err == nil { // it was granted before the cancellation
					_ = le.Release(context.Background())
				}
			})
			time.Sleep(1200 * time.Millisecond)
			var took time.Duration
			released := make(chan time.Time, 1)
			waiters.Go(func() {
				le, err := next.Acquire(t.Context(), "k", long)
				took = time.Since(<-released)
				if err != nil {
					t.Error(err)
					return
				}
				_ = le.Release(t.Context())
			})
			time.Sleep(200 * time.Millisecond)
			slow.Delay(oneWay)
			release := func() {
				released <- time.Now()
				_ = held.Release(t.Context())
			}
			if after < 0 {
				release()
				time.Sleep(-after)
			}
			pileUp(gone, n) // these are before the withdrawal for k
			cancel()
			if after >= 0 {
				time.Sleep(after)
				release()
			}
			waiters.Wait()
			// At most: the notification, a pipeline under way, and the withdrawal; or the replies
			// to two requests of the woken call.
			if most := 7*oneWay + max(-after, 0); took > most {
				t.Errorf("released %v after the cancellation: the next waiter waited %v, want at most %v", after, took, most)
			}
			time.Sleep(5 * time.Second)
		})
	}
}

// A call for a key sends nothing until the withdrawal of the earlier request for that key is
// confirmed. So an unused grant of this process is neither a busy key nor an abandoned run for the
// call. The withdrawal is sent once after Redis replies again.
// Shows: R2
func TestCleanupBeforeNextRequest(t *testing.T) {
	for name, pause := range map[string]time.Duration{"lease valid": 5 * time.Second, "lease over": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, faults, count := w.Locker(lockcore.Options{})
				w.Warm(l)
				pileUp(l, 1) // loads the script
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				faults.SilenceReplies()
				if _, _, err := l.Claim(ctx, "k", lockcore.Claim{Terms: lockcore.Terms{Wait: 10 * time.Minute}, AtMostOnce: true}); !errors.Is(err, lockcore.ErrUnavailable) {
					t.Fatal(err)
				}
				faults.Down() // commands that are already sent arrive, the others are not sent
				time.Sleep(pause)
				count.Reset()
				faults.Heal()
				le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait, AtMostOnce: true})
				if err != nil {
					t.Fatal(err)
				}
				if le.Attempt() != 1 {
					t.Errorf("attempt %d", le.Attempt())
				}
				sent := count.Commands()
				if leave, acquire := slices.Index(sent, "leave"), slices.Index(sent, "acquire"); leave < 0 || acquire < leave || count.Count("leave") != 1 {
					t.Errorf("sent %v, want one withdrawal and then the request", sent)
				}
				_ = le.Release(t.Context())
			})
		})
	}
}

// The number of unconfirmed withdrawals has reached its bound. A request for a new key waits,
// within its own Wait, and then fails with an error that contains the number. Releases are kept,
// and all of them are sent when Redis replies again.
// Shows: R1
func TestCleanupBound(t *testing.T) {
	testlevel.Full(t)
	synctest.Test(t, func(t *testing.T) {
		w, obs := newWorld(t), new(locktest.Recorder)
		l, faults, _ := w.Locker(lockcore.Options{Observer: obs})
		takeOnce(t, l, "warm")
		le := w.Must(l.Acquire(t.Context(), "held", lockcore.Terms{Lease: time.Minute}))
		faults.Down()
		pileUp(l, cleanup.MaxCleanups)
		_ = le.Release(t.Context())
		for _, terms := range []lockcore.Terms{{Wait: 3 * time.Second}, noWait} {
			start := time.Now()
			_, err := l.Acquire(t.Context(), "new", terms)
			if d := time.Since(start); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint(cleanup.MaxCleanups+1)) ||
				d > 3500*time.Millisecond {
				t.Errorf("beyond the bound: %v after %v", err, d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := l.Acquire(ctx, "new", long); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 100*time.Millisecond {
			t.Errorf("beyond the bound: %v after %v", err, time.Since(start))
		}
		got := make(chan error, 1)
		go func() {
			le, err := l.Acquire(t.Context(), "new", long)
			if err == nil {
				err = le.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(time.Second)
		faults.Heal()
		if err := <-got; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if h, err := l.Inspect(t.Context(), event.KindExclusive, "held"); err != nil || h.State != lockcore.StateFree {
			t.Errorf("the key released while Redis was unavailable: %+v, %v", h, err)
		}
		if n, _ := dropped(obs); n != 0 || cleanups(l) != 0 {
			t.Errorf("%d given up, %d left", n, cleanups(l))
		}
	})
}

// A server that is away for long costs a bounded amount of memory, if others go on without it.
func TestCleanupBoundOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := faulty.New(t)
		rdb := redistest.Bubble(t).Client(t, func(o *redis.Options) { o.Dialer = faults.Dial(o.Dialer) })
		b, err := redisbackend.New(rdb, redisbackend.Options{Connected: func(backend.ServerInfo) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		faults.Down()
		key := b.Key(backend.KindExclusive, "k")
		for range 3 * cleanup.MaxCleanups {
			b.Withdraw(backend.WithdrawRequest{Key: &key, ID: rand.Text(), Repeated: true})
			b.ReleaseLater(backend.ReleaseRequest{Key: &key, ID: rand.Text(), Repeated: true}, time.Now().Add(time.Hour))
		}
		if n := b.Unconfirmed(); n != 4*cleanup.MaxCleanups {
			t.Errorf("%d unconfirmed", n)
		}
	})
}

// Close waits for withdrawals within its time limit. Those that are not confirmed by then are
// reported.
// Shows: R1
func TestCleanupClose(t *testing.T) {
	for way, goAway := range map[string]func(*faulty.Network){
		"answers": func(f *faulty.Network) { f.Delay(100 * time.Millisecond) }, "refused": (*faulty.Network).Down,
		"black hole": (*faulty.Network).Silence, "replies lost": (*faulty.Network).SilenceReplies,
	} {
		for kind, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
			"own":     func(c *redis.Client) redis.UniversalClient { return c },
			"wrapper": func(c *redis.Client) redis.UniversalClient { return inWrapper(c) },
		} {
			t.Run(way+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 300
					w, faults, obs := newWorld(t), faulty.New(t), new(locktest.Recorder)
					o := w.Options()
					o.Dialer = faults.Dial(o.Dialer)
					rdb := redis.NewClient(o)
					l, err := lockcore.New(wrap(rdb), lockcore.Options{Observer: obs, NoGroups: true})
					if err != nil {
						t.Fatal(err)
					}
					takeOnce(t, l, "warm")
					goAway(faults)
					pileUp(l, n)
					ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
					defer cancel()
					start := time.Now()
					if err := l.Close(ctx); err != nil {
						t.Error(err)
					}
					took := time.Since(start)
					lost, err := dropped(obs)
					if way == "answers" {
						if took >= 1500*time.Millisecond || lost != 0 {
							t.Errorf("closed after %v, %d cleanups failed", took, lost)
						}
					} else if took != 1500*time.Millisecond || lost != n || !errors.Is(err, lockcore.ErrClosed) {
						t.Errorf("closed after %v, %d of %d cleanups reported: %v", took, lost, n, err)
					}
					pileUp(l, 1) // too late, because the Locker is closed
					if cleanups(l) != 0 {
						t.Error("a cleanup is kept after Close")
					}
					faults.Heal()
					_ = rdb.Close()
					time.Sleep(10 * time.Second)
				})
			})
		}
	}
}

// Redis refuses a cleanup for good. It is reported, and does not delay the others.
// Shows: R1
func TestCleanupRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, obs := newWorld(t), new(locktest.Recorder)
		l, _, _ := w.Locker(lockcore.Options{Observer: obs})
		takeOnce(t, l, "warm")
		for i := range 3 {
			w.Redis.Set(t.Context(), storedNames(event.KindExclusive, fmt.Sprint("pile", i))[0], "a string", 0)
		}
		pileUp(l, 150)
		time.Sleep(time.Second)
		if n, _ := dropped(obs); n != 3 || cleanups(l) != 0 {
			t.Errorf("%d given up, %d left; want 3 and 0", n, cleanups(l))
		}
	})
}

// In a cluster a stopped server delays only the withdrawals of its own keys.
// Shows: R1
func TestCleanupCluster(t *testing.T) {
	testlevel.Campaign(t)
	const n = 300
	s := redistest.Cluster(t)
	rdb := s.Client(t)
	l, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNow(t, holder); _ = l.Close(context.Background()) })
	keys := keyNames(n)
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	stopped := s.Master(0)
	var healthy, sick []string
	for _, key := range keys {
		if _, err := holder.Acquire(t.Context(), key, lockcore.Terms{}); err != nil {
			t.Fatal(err)
		}
		waiters.Go(func() { _, _ = l.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever}) })
		hash := storedNames(event.KindExclusive, key)[0]
		if s.Master(s.Slot(hash)) == stopped {
			sick = append(sick, key)
		} else {
			healthy = append(healthy, key)
		}
	}
	eventually(t, "the queues", func() bool { return waitingIn(t, rdb, keys) == n })
	stopped.Pause()
	cancel()
	start := time.Now()
	eventually(t, "the queues of the other servers", func() bool { return waitingIn(t, rdb, healthy) == 0 })
	took := time.Since(start)
	stopped.Resume()
	eventually(t, "all queues", func() bool { return waitingIn(t, rdb, sick) == 0 })
	t.Logf("%d queues of the other servers were empty after %v, %d of the stopped one %v later", len(healthy), took, len(sick), time.Since(start)-took)
	if len(sick) == 0 || len(healthy) == 0 {
		t.Error("inconclusive: all keys are on one side")
	}
	waiters.Wait()
}

// A withdrawal is retried if its connection could not log in, for example while a password is
// rotated. A client of one server returns this error only from Exec.
func TestCleanupLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Memory.Redis.RequireUserAuth("job", "old")
		faults := faulty.New(t)
		o := w.Options()
		o.Username, o.Password, o.Dialer = "job", "old", faults.Dial(o.Dialer)
		l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
		takeOnce(t, l, "warm")
		w.Memory.Redis.RequireUserAuth("job", "new")
		faults.Cut()
		pileUp(l, 3)
		time.Sleep(20 * time.Second)
		if n := cleanups(l); n != 3 {
			t.Errorf("%d withdrawals are kept while nothing can log in, want 3", n)
		}
		w.Memory.Redis.RequireUserAuth("job", "old")
		time.Sleep(3 * time.Second)
		if n := cleanups(l); n != 0 {
			t.Errorf("%d withdrawals are not confirmed", n)
		}
	})
}
