package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The cases of Redisson's RReadWriteLock, by the names that testdata/redisson.txt lists. A ctx, or
// one of the processes f.locks and f.other, takes the part of a thread of Redisson.

var (
	reader    = testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Wait: lockcore.Forever}}
	tryReader = testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Terms: lockcore.Terms{Wait: lockcore.NoWait}}
	writer    = testcall.Call{Terms: forever}
	tryWriter = testcall.Call{Terms: noWait}
	readerFor = fixedLease(reader)
	writerFor = fixedLease(writer)
)

// fixedLease returns a function that adds a lease of d to t. The lease is not renewed.
func fixedLease(t testcall.Call) func(d time.Duration) testcall.Call {
	return func(d time.Duration) testcall.Call {
		t.Lease, t.Fixed = d, true
		return t
	}
}

// get acquires "k". It fails the test if the call is refused.
func get(ctx context.Context, t *testing.T, l *lockcore.Locker, terms testcall.Call) *lockcore.Lease {
	t.Helper()
	le, err := terms.Acquire(ctx, l, "k")
	if err != nil {
		t.Fatal(err)
	}
	return le
}

// refused fails the test if a call for "k" is not refused at once with the error want.
func refused(ctx context.Context, t *testing.T, l *lockcore.Locker, terms testcall.Call, want error) {
	t.Helper()
	began := time.Now()
	le, err := terms.Acquire(ctx, l, "k")
	if took := time.Since(began); !errors.Is(err, want) || took > 10*time.Millisecond {
		t.Errorf("%v after %v, want %v at once", err, took, want)
	}
	_ = le.Release(ctx)
}

// release ends leases. It fails the test if one of them had ended before.
func release(t *testing.T, leases ...*lockcore.Lease) {
	t.Helper()
	for _, le := range leases {
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// within fails the test if the virtual time since began is not between least and most.
func within(t *testing.T, began time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
}

// process returns one of the two processes.
func (f *fixture) process(i int) *lockcore.Locker {
	if i%2 == 0 {
		return f.locks
	}
	return f.other
}

func stateOf(t *testing.T, l *lockcore.Locker) lockcore.Holding {
	t.Helper()
	h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
	if err != nil {
		t.Error(err)
	}
	return h
}

func held(ctx context.Context) bool {
	_, ok := guard.Token(ctx, "k")
	return ok
}

// Shows: S2
func TestPeer_redissonReadWriteLock(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		// The shorter lease of a reader does not shorten the lease of another reader.
		"testReadLockExpiration": func(t *testing.T, f *fixture) {
			began := time.Now()
			first := get(t.Context(), t, f.locks, readerFor(10*time.Second))
			time.Sleep(300 * time.Millisecond)
			second := get(t.Context(), t, f.locks, readerFor(3*time.Second))
			time.AfterFunc(2300*time.Millisecond, func() { release(t, second) })
			time.AfterFunc(8500*time.Millisecond, func() { release(t, first) })
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 8800*time.Millisecond, 8900*time.Millisecond)
		},
		// Inspect shows the writer. It shows no share for the reader that is nested in it.
		"testReadLockIsLocked": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			r := get(w.Context(), t, f.locks, tryReader)
			if h := stateOf(t, f.other); h.State != lockcore.StateHeld || h.Weights != 0 || !held(r.Context()) {
				t.Errorf("%+v", h)
			}
			release(t, r, w)
		},
		// 50 readers run, ten at a time, and each runs for longer than a lease.
		"testReadLockExpirationRenewal": func(t *testing.T, f *fixture) {
			slots := make(chan struct{}, 10)
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					err := guard.Shared(t.Context(), f.process(i), "k", lockcore.Terms{}, func(context.Context) error {
						time.Sleep(35 * time.Second)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		},
		// Readers of a key with braces run and end.
		"testName": func(t *testing.T, f *fixture) {
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					for range 10 {
						if err := guard.Shared(t.Context(), f.process(i), "{test}:abc:key", lockcore.Terms{}, nothing); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			f.free(t, "{test}:abc:key")
		},
		// A nested call with a shorter lease does not shorten the lease of the hold.
		"testWriteLockExpiration": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writerFor(10*time.Second))
			inner := get(w.Context(), t, f.locks, writerFor(time.Second))
			terms := lockcore.Terms{Wait: 3 * time.Second}
			if _, err := f.other.Acquire(t.Context(), "k", terms); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("another writer: %v", err)
			}
			release(t, inner, w)
		},
		"testReadLockLeaseTimeoutDiffThreadsWRR": func(t *testing.T, f *fixture) {
			began := time.Now()
			w := get(t.Context(), t, f.locks, writerFor(10*time.Second))
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { release(t, get(t.Context(), t, f.other, reader)) })
			}
			wg.Wait()
			within(t, began, 10*time.Second, 10250*time.Millisecond)
			_ = w.Release(t.Context())
		},
		"testReadLockLeaseTimeoutDiffThreadsRRW": func(t *testing.T, f *fixture) {
			began := time.Now()
			r := get(t.Context(), t, f.locks, readerFor(10*time.Second))
			time.Sleep(5 * time.Second)
			release(t, get(t.Context(), t, f.locks, readerFor(10*time.Second)))
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 10*time.Second, 10250*time.Millisecond)
			_ = r.Release(t.Context())
		},
		// A nested reader does not extend the lease of the hold.
		"testReadLockLeaseTimeout": func(t *testing.T, f *fixture) {
			r := get(t.Context(), t, f.locks, readerFor(4*time.Second))
			time.Sleep(3 * time.Second)
			release(t, get(r.Context(), t, f.locks, readerFor(4*time.Second)))
			time.Sleep(2 * time.Second)
			release(t, get(t.Context(), t, f.other, tryWriter))
			_ = r.Release(t.Context())
		},
		"testWR": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			release(t, get(w.Context(), t, f.locks, reader))
			refused(t.Context(), t, f.other, tryReader, lockcore.ErrBusy)
			release(t, w)
			f.free(t, "k")
		},
		// 20 readers wait behind a writer. They run at the same time.
		"testWriteRead": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					r := get(t.Context(), t, f.process(i), reader)
					time.Sleep(800 * time.Millisecond)
					release(t, r)
				})
				time.Sleep(100 * time.Millisecond)
			}
			began := time.Now()
			release(t, w)
			wg.Wait()
			within(t, began, 800*time.Millisecond, time.Second)
		},
		// Differs: a writer does not become a reader. The writer's hold lasts until its last nested
		// run ends.
		"testWriteReadReentrancy": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			r := get(w.Context(), t, f.locks, tryReader)
			refused(t.Context(), t, f.other, tryReader, lockcore.ErrBusy)
			release(t, w)
			refused(t.Context(), t, f.other, tryReader, lockcore.ErrBusy)
			refused(t.Context(), t, f.other, tryWriter, lockcore.ErrBusy)
			release(t, r)
			f.free(t, "k")
		},
		"testWriteLock": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			inner := get(w.Context(), t, f.locks, tryWriter)
			for _, l := range []*lockcore.Locker{f.locks, f.other} {
				refused(t.Context(), t, l, tryReader, lockcore.ErrBusy)
			}
			release(t, inner)
			if !held(w.Context()) {
				t.Error("the outer call has lost the key")
			}
			release(t, w)
			r, other := get(t.Context(), t, f.locks, tryReader), get(t.Context(), t, f.other, tryReader)
			refused(r.Context(), t, f.locks, tryWriter, lockcore.ErrUpgrade)
			refused(t.Context(), t, f.other, tryWriter, lockcore.ErrBusy)
			release(t, r, other)
		},
		"testMultiRead": func(t *testing.T, f *fixture) {
			r := get(t.Context(), t, f.locks, reader)
			refused(t.Context(), t, f.locks, tryWriter, lockcore.ErrBusy)
			other := get(t.Context(), t, f.other, reader)
			release(t, r)
			refused(t.Context(), t, f.locks, tryWriter, lockcore.ErrBusy)
			release(t, other)
			w := get(t.Context(), t, f.locks, tryWriter)
			if h := stateOf(t, f.other); h.State != lockcore.StateHeld || !held(w.Context()) {
				t.Errorf("%+v", h)
			}
			release(t, w)
			if h := stateOf(t, f.other); h.State != lockcore.StateFree || held(w.Context()) {
				t.Errorf("%+v", h)
			}
		},
		// Differs: Revoke cancels the ctx of each holder, reader or writer. The key stays held
		// until the handler returns.
		"testForceUnlock": func(t *testing.T, f *fixture) {
			for _, terms := range []testcall.Call{reader, writer} {
				le := get(t.Context(), t, f.locks, terms)
				time.Sleep(2 * time.Second) // the lease subscribes
				if err := f.other.Revoke(t.Context(), event.KindExclusive, "k"); err != nil {
					t.Error(err)
				}
				<-le.Context().Done()
				refused(t.Context(), t, f.other, tryReader, lockcore.ErrBusy)
				if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrRevoked) {
					t.Error(err)
				}
				f.free(t, "k")
			}
		},
		"testReadWriteTTL": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			r := get(w.Context(), t, f.locks, reader)
			for i := range 10 {
				if left := stateOf(t, f.other).Remaining; left < 19*time.Second {
					t.Errorf("the lease ends in %v", left)
				}
				if i == 5 {
					release(t, w)
				}
				time.Sleep(5 * time.Second)
			}
			release(t, r)
		},
		"testExpireRead": func(t *testing.T, f *fixture) {
			began := time.Now()
			r := get(t.Context(), t, f.locks, readerFor(2*time.Second))
			release(t, get(t.Context(), t, f.other, reader))
			within(t, began, 0, 50*time.Millisecond)
			release(t, r)
		},
		"testExpireWrite": func(t *testing.T, f *fixture) {
			began := time.Now()
			w := get(t.Context(), t, f.locks, writerFor(2*time.Second))
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 2*time.Second, 2250*time.Millisecond)
			if err := w.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
				t.Error(err)
			}
		},
		// A process ends without a release.
		"testAutoExpire": func(t *testing.T, f *fixture) {
			w := get(t.Context(), t, f.locks, writer)
			f.faults.Silence()
			began := time.Now()
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 29*time.Second, 30250*time.Millisecond)
			f.faults.Heal()
			_ = w.Release(t.Context())
		},
		// The ctx holds the key, not the thread.
		"testIsHeldByCurrentThread": func(t *testing.T, f *fixture) {
			r := get(t.Context(), t, f.locks, reader)
			if held(t.Context()) || !held(r.Context()) {
				t.Error("want the key in the ctx of the lease only")
			}
			release(t, r)
			if held(r.Context()) {
				t.Error("the ctx of a released lease holds the key")
			}
		},
		// Inspect in another process shows that a reader holds the key.
		"testIsLocked": func(t *testing.T, f *fixture) {
			r := get(t.Context(), t, f.locks, reader)
			if h := stateOf(t, f.other); h.State != lockcore.StateShared {
				t.Errorf("%+v", h)
			}
			release(t, r)
			if h := stateOf(t, f.other); h.State != lockcore.StateFree {
				t.Errorf("%+v", h)
			}
		},
		// Differs: the Lease is the right to release. A second release changes nothing.
		"testUnlockFail": func(t *testing.T, f *fixture) {
			r, other := get(t.Context(), t, f.locks, reader), get(t.Context(), t, f.other, reader)
			release(t, r)
			if err := r.Release(t.Context()); !errors.Is(err, lockcore.ErrReleased) {
				t.Error(err)
			}
			if h := stateOf(t, f.locks); h.Weights != 1 {
				t.Errorf("%+v", h)
			}
			release(t, other)
		},
		"testLockUnlock": func(t *testing.T, f *fixture) {
			for range 2 {
				release(t, get(t.Context(), t, f.locks, reader))
			}
			f.free(t, "k")
		},
		"testReentrancy": func(t *testing.T, f *fixture) {
			r := get(t.Context(), t, f.locks, tryReader)
			release(t, get(r.Context(), t, f.locks, tryReader))
			if err := guard.Shared(t.Context(), f.other, "k1", noWait, nothing); err != nil {
				t.Error(err)
			}
			refused(t.Context(), t, f.other, tryWriter, lockcore.ErrBusy)
			release(t, r)
			f.free(t, "k")
		},
		// Redisson's three tests of concurrency: each call runs, and no writer runs beside another
		// call.
		"testConcurrencyLoop_MultiInstance": func(t *testing.T, f *fixture) {
			var readers, writers, runs atomic.Int32
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for j := range 20 {
						call, now := guard.Shared, &readers
						if (i+j)%3 == 0 {
							call, now = guard.Exclusive, &writers
						}
						err := call(t.Context(), f.process(i), "k", forever, func(context.Context) error {
							now.Add(1)
							runs.Add(1)
							if w, r := writers.Load(), readers.Load(); w > 1 || w == 1 && r > 0 {
								t.Errorf("%d writers, %d readers", w, r)
							}
							time.Sleep(10 * time.Millisecond)
							now.Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if n := runs.Load(); n != 16*20 {
				t.Errorf("%d runs", n)
			}
		},
		// The share of a dead process does not outlive its lease, although another process renews a
		// share of the same key.
		"testMultiInstanceReadLockZombieCleanup": func(t *testing.T, f *fixture) {
			dead := get(t.Context(), t, f.locks, reader)
			f.faults.Silence()
			alive := get(t.Context(), t, f.other, reader)
			time.Sleep(35 * time.Second)
			if h := stateOf(t, f.other); h.Weights != 1 {
				t.Errorf("%+v", h)
			}
			release(t, alive)
			release(t, get(t.Context(), t, f.other, tryWriter))
			f.faults.Heal()
			_ = dead.Release(t.Context())
		},
		// 60 shares of a dead process delay a writer by at most a lease and 250 ms.
		"testMultiInstanceZombieReadLockPerformance": func(t *testing.T, f *fixture) {
			var dead []*lockcore.Lease
			for range 60 {
				dead = append(dead, get(t.Context(), t, f.locks, reader))
				time.Sleep(6 * time.Millisecond) // so that the next call gets a separate share
			}
			f.faults.Silence()
			began := time.Now()
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 25*time.Second, 30250*time.Millisecond)
			f.faults.Heal()
			for _, le := range dead {
				_ = le.Release(t.Context())
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, test) })
	}
}

// RedissonReadWriteLockTest.testInCluster and
// RedissonPermitExpirableSemaphoreTest.testGetInClusterNameMapper: shares work in a Redis Cluster,
// nested in a hold, and with a prefix.
func TestPeer_redissonSharesInCluster(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Cluster(t)
	locks, err := lockcore.New(s.Client(t), lockcore.Options{Prefix: "test::"})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	for i := range 20 {
		key := fmt.Sprint(i)
		err := guard.Exclusive(t.Context(), locks, key, noWait, func(ctx context.Context) error {
			return guard.Shared(ctx, locks, key, noWait, nothing)
		})
		if err != nil {
			t.Error(err)
		}
		err = guard.Limited(t.Context(), locks, key, lockcore.Limit{N: 1}, noWait, func(context.Context) error {
			if err := guard.Limited(t.Context(), locks, key, lockcore.Limit{N: 1}, noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("a second permit: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Redisson #4796: a reader that acquires the write lock of its key waits forever. Here it is
// refused at once, and so are two readers that do this at the same time.
// Shows: S8
func TestPeer_redissonUpgradeHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var wg sync.WaitGroup
		for _, l := range []*lockcore.Locker{f.locks, f.other} {
			wg.Go(func() {
				err := guard.Shared(t.Context(), l, "k", forever, func(ctx context.Context) error {
					time.Sleep(100 * time.Millisecond)
					began := time.Now()
					err := guard.Exclusive(ctx, l, "k", forever, nothing)
					if took := time.Since(began); took > 0 {
						t.Errorf("refused after %v", took)
					}
					return err
				})
				if !errors.Is(err, lockcore.ErrUpgrade) || !errors.Is(err, lockcore.ErrNotRun) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		f.free(t, "k")
	})
}

// Redisson #5379: its read-write lock is not fair, so new readers pass a waiting writer. Here the
// writer waits only for the readers that came before it.
// Shows: S3
func TestPeer_redissonReadersUnfair(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		stop, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for stop.Err() == nil {
					err := guard.Shared(t.Context(), f.process(i), "k", forever, func(context.Context) error {
						time.Sleep(50*time.Millisecond + time.Duration(i)*time.Millisecond)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			began := time.Now()
			release(t, get(t.Context(), t, f.other, writer))
			within(t, began, 0, 2*70*time.Millisecond+20*time.Millisecond)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		wg.Wait()
	})
}
