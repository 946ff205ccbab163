package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// bubbleLockers returns Lockers on one server with virtual time.
func bubbleLockers(t *testing.T, n int) (all []*lockcore.Locker) {
	t.Helper()
	s := redistest.Bubble(t)
	for range n {
		l, err := lockcore.New(s.Client(t), lockcore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		all = append(all, l)
	}
	return all
}

// room counts what runs under a key, and fails the test on a writer beside others or on too great a
// weight.
type room struct {
	mu          sync.Mutex
	writers     int
	weight      int
	most, limit int
	bad         string
}

func (r *room) enter(t lockcore.Terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Limit == 0 {
		r.writers++
	} else {
		r.weight += max(t.Weight, 1)
	}
	r.most = max(r.most, r.weight)
	if r.writers > 1 || r.writers > 0 && r.weight > 0 || r.limit > 0 && r.weight > r.limit {
		r.bad = fmt.Sprintf("%d writers, weight %d", r.writers, r.weight)
	}
}

func (r *room) leave(t lockcore.Terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Limit == 0 {
		r.writers--
	} else {
		r.weight -= max(t.Weight, 1)
	}
}

// Readers, writers and permits of several Lockers never exceed what they ask for, and all of them get
// their turn.
func TestShares(t *testing.T) {
	for name, terms := range map[string]func(r *rand.Rand) lockcore.Terms{
		"readers and writers": func(r *rand.Rand) lockcore.Terms {
			if r.IntN(10) == 0 {
				return lockcore.Terms{}
			}
			return lockcore.Terms{Limit: lockcore.Unlimited}
		},
		"permits": func(*rand.Rand) lockcore.Terms { return lockcore.Terms{Limit: 3} },
		"weights": func(r *rand.Rand) lockcore.Terms { return lockcore.Terms{Limit: 3, Weight: 1 + r.IntN(3)} },
		"permits and writers": func(r *rand.Rand) lockcore.Terms {
			if r.IntN(10) == 0 {
				return lockcore.Terms{}
			}
			return lockcore.Terms{Limit: 3, Weight: r.IntN(3)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lockers := bubbleLockers(t, 3)
				r := new(room)
				if name == "permits" || name == "weights" {
					r.limit = 3
				}
				var all sync.WaitGroup
				var longest atomic.Int64
				for i := range 24 {
					all.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(i), 7))
						for range 40 {
							terms := terms(rnd)
							terms.Wait = lockcore.Forever
							began := time.Now()
							le, err := lockers[i%3].Acquire(t.Context(), "k", terms)
							if err != nil {
								t.Error(err)
								return
							}
							longest.Store(max(longest.Load(), int64(time.Since(began))))
							r.enter(terms)
							time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
							r.leave(terms)
							if err := le.Release(t.Context()); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(rnd.IntN(2)*rnd.IntN(9000)) * time.Microsecond)
						}
					})
				}
				all.Wait()
				if r.bad != "" || r.writers != 0 || r.weight != 0 {
					t.Errorf("%s; at the end %d writers, weight %d", r.bad, r.writers, r.weight)
				}
				if r.most < 2 {
					t.Error("no two shares were held at the same time")
				}
				t.Logf("the longest wait was %v, at most weight %d", time.Duration(longest.Load()), r.most)
				s, err := lockers[0].Inspect(t.Context(), lockcore.KindExclusive, "k")
				if err != nil || s.State != lockcore.StateFree || s.Queue != 0 {
					t.Errorf("at the end %+v, %v", s, err)
				}
			})
		})
	}
}

func TestSharesUpgrade(t *testing.T) {
	l, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = le.Release(context.WithoutCancel(t.Context())) }()
	for _, terms := range []lockcore.Terms{{}, {Limit: 2}, {Limit: 3, Weight: 2}} {
		if _, err := l.Acquire(le.Context(), "k", terms); !errors.Is(err, lockcore.ErrUpgrade) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%+v: %v", terms, err)
		}
	}
	for _, terms := range []lockcore.Terms{{Limit: 3}, {Limit: lockcore.Unlimited}, {Limit: 5}} {
		inner, err := l.Acquire(le.Context(), "k", terms)
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != le.Token() {
			t.Errorf("token %d, want %d", inner.Token(), le.Token())
		}
		if err := inner.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
