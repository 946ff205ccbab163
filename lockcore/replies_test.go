package lockcore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// story is the life of one key between two processes a and b. The connections of a have faults.
type story struct {
	*world
	a, b   *lockcore.Locker
	faults *faulty.Network
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{world: newWorld(t)}
	s.a, s.faults, _ = s.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Second, Wait: time.Minute}})
	s.b, _, _ = s.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 5 * time.Second, Wait: time.Minute}})
	// Each script is sent once, so that the faults know its name.
	le := s.Must(s.a.Acquire(t.Context(), "warm", lockcore.Terms{}))
	time.Sleep(3 * time.Second)
	s.giveUp(s.a, "warm")
	_ = le.Release(t.Context())
	le, _, err := s.a.Claim(t.Context(), "warm", lockcore.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	_ = le.Complete(t.Context(), nil, time.Second)
	time.Sleep(2 * time.Minute) // until the subscription, the queue and the stored data have ended
	return s
}

// giveUp waits for a held key and is refused.
func (s *story) giveUp(l *lockcore.Locker, key string) {
	ctx, cancel := context.WithTimeout(s.T.Context(), 1500*time.Millisecond)
	defer cancel()
	if le, err := l.Acquire(lockcore.Detach(ctx), key, lockcore.Terms{Wait: 700 * time.Millisecond}); err == nil {
		s.T.Error("acquired a key that is held")
		_ = le.Release(ctx)
	}
}

// exclusive lets a hold and renew, b wait for it, a waiter of a give up, and a wait for b.
func (s *story) exclusive() {
	t, last := s.T, int64(0)
	hold := func(l *lockcore.Locker, d time.Duration) {
		start := time.Now()
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		if err != nil {
			t.Errorf("acquire: %v", err)
			return
		}
		if w := time.Since(start); w > 9*time.Second {
			t.Errorf("waited %v for a key that is held for 3 s", w)
		}
		if le.Token() <= last {
			t.Errorf("token %d after %d", le.Token(), last)
		}
		last = le.Token()
		time.Sleep(d)
		if err := le.Context().Err(); err != nil {
			t.Errorf("the lease was lost after one fault: %v", context.Cause(le.Context()))
		}
		if err := le.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	for range 2 {
		var wg sync.WaitGroup
		wg.Go(func() { hold(s.a, 6*time.Second) })
		time.Sleep(1500 * time.Millisecond)
		wg.Go(func() { hold(s.b, 3*time.Second) })
		s.giveUp(s.a, "k")
		wg.Wait()
		wg.Go(func() { hold(s.b, 3*time.Second) })
		time.Sleep(1500 * time.Millisecond)
		s.giveUp(s.a, "k")
		hold(s.a, time.Second)
		wg.Wait()
	}
}

// once lets a claim and complete while b waits for the record. Then a replays it.
func (s *story) once() {
	t, runs := s.T, 0
	do := func(l *lockcore.Locker, d time.Duration) {
		le, rec, err := l.Claim(t.Context(), "k", lockcore.Claim{})
		switch {
		case err != nil:
			t.Errorf("claim: %v", err)
		case rec != nil:
			if string(rec.Data) != "done" || rec.Attempt != 1 {
				t.Errorf("record %q of attempt %d", rec.Data, rec.Attempt)
			}
		default:
			runs++
			if le.Attempt() != 1 || le.Abandoned() {
				t.Errorf("attempt %d, abandoned %v", le.Attempt(), le.Abandoned())
			}
			time.Sleep(d)
			if err := le.Complete(t.Context(), []byte("done"), time.Hour); err != nil {
				t.Errorf("complete: %v", err)
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { do(s.a, 3*time.Second) })
	time.Sleep(1500 * time.Millisecond)
	wg.Go(func() { do(s.b, 3*time.Second) })
	wg.Wait()
	do(s.a, 0)
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// settled checks that nothing is held, the queue is empty, each key has a TTL, and both processes
// get the key at once.
func (s *story) settled(kind event.Kind, want lockcore.State) {
	t := s.T
	time.Sleep(6 * time.Second)
	h, err := s.b.Inspect(t.Context(), kind, "k")
	if err != nil || h.State != want || h.Queue != 0 {
		t.Errorf("at the end: %+v, %v", h, err)
	}
	for _, key := range s.Memory.Redis.Keys() {
		if strings.Contains(key, "{") && s.Memory.Redis.TTL(key) <= 0 {
			t.Errorf("%s has no TTL", key)
		}
	}
	for _, l := range []*lockcore.Locker{s.b, s.a} {
		le, err := l.Acquire(t.Context(), "k", noWait)
		if err != nil {
			t.Errorf("acquire of a free key: %v", err)
			continue
		}
		if le.Abandoned() {
			t.Error("Abandoned is true, but no run was abandoned")
		}
		_ = le.Release(t.Context())
	}
}

// One reply or request is lost, one connection is cut, or one command arrives late, at any step of
// any script. No run is counted twice, no key stays held, no call gets a wrong ErrBusy, and no
// lease is lost.
// Shows: I8, L12
func TestOneFault(t *testing.T) {
	testlevel.InMemory(t)
	stories := map[string]struct {
		tell    func(*story)
		kind    event.Kind
		want    lockcore.State
		scripts []string
	}{
		"exclusive": {(*story).exclusive, event.KindExclusive, lockcore.StateFree, []string{"acquire", "renew", "release", "leave"}},
		"once":      {(*story).once, event.KindOnce, lockcore.StateDone, []string{"acquire", "renew", "complete", "leave"}},
	}
	hits, i, every := 0, 0, testlevel.Pick(t, 8, 4, 1)
	for _, name := range slices.Sorted(maps.Keys(stories)) { // sorted, so that a sample is always the same
		st := stories[name]
		for _, script := range st.scripts {
			for _, kind := range slices.Sorted(maps.Keys(faultKinds)) {
				if i++; i%every != 0 {
					continue
				}
				plant := faultKinds[kind]
				for n := 1; ; n++ {
					struck := false
					t.Run(fmt.Sprintf("%s/%s %d/%s", name, script, n, kind), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s := newStory(t)
							f := plant(s.faults, faulty.Nth(n, faulty.Script(script)))
							st.tell(s)
							select {
							case <-f.Struck():
								struck = true
							default:
							}
							if kind == "held up" {
								s.late(f)
							}
							s.settled(st.kind, st.want)
						})
					})
					if !struck {
						break
					}
					hits++
				}
			}
		}
	}
	if hits < 40/every/2 {
		t.Errorf("only %d faults struck", hits)
	}
	t.Logf("%d faults struck", hits)
}

// late delivers the held command while b holds the key. It grants nothing and releases nothing.
func (s *story) late(f *faulty.Fault) {
	t := s.T
	le := s.Must(s.b.Acquire(t.Context(), "k", lockcore.Terms{}))
	f.Deliver()
	time.Sleep(10 * time.Second)
	if h, err := s.b.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateHeld || h.Token != le.Token() {
		t.Errorf("a late duplicate changed the holder: %+v, %v", h, err)
	}
	if err := le.Release(t.Context()); err != nil {
		t.Errorf("release after a late duplicate: %v", err)
	}
	time.Sleep(time.Second)
	if h, err := s.b.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateFree || h.Queue != 0 {
		t.Errorf("a late duplicate was granted or queued: %+v, %v", h, err)
	}
}
