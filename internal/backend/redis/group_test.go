package redis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// callers is a number of concurrent calls that are sent in groups.
const callers = 32

// atOnce runs callers calls at the same time, and returns the error of each and the time of the
// slowest.
func atOnce(call func(i int) error) (errs []error, slowest time.Duration) {
	errs = make([]error, callers)
	took := make([]time.Duration, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			start := time.Now()
			errs[i] = call(i)
			took[i] = time.Since(start)
		})
	}
	wg.Wait()
	return errs, slices.Max(took)
}

// sendOnce returns a call that sends one acquire and does not repeat it.
func sendOnce(ctx context.Context, l *lockcore.Locker) func(int) error {
	b := access.Of(l).Backend
	return func(i int) error {
		key := b.Key(backend.KindExclusive, fmt.Sprint("k", i))
		_, err := b.Acquire(ctx, backend.AcquireRequest{Key: &key, ID: rand.Text(), Lease: time.Second, Retention: time.Second, Timeout: time.Second})
		return err
	}
}

// warm repeats all calls until none fails. On a loaded machine that may take several tries, because
// each call has a bound of 1 s. warm returns how many calls failed. The command of each of them may
// still be sent later.
func warm(t *testing.T, call func(i int) error) (failed int) {
	t.Helper()
	eventually(t, "all calls succeed", func() bool {
		errs, _ := atOnce(call)
		n := failedCalls(errs)
		failed += n
		return n == 0
	})
	return failed
}

func failedCalls(errs []error) int {
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// lockAndUnlock returns a call that acquires and releases its own key.
func lockAndUnlock(ctx context.Context, l *lockcore.Locker, t lockcore.Terms) func(int) error {
	return func(i int) error {
		le, err := l.Acquire(ctx, fmt.Sprint("k", i), t)
		if err != nil {
			return err
		}
		return le.Release(ctx)
	}
}

// No fault of a connection makes the Locker or go-redis send a command of a group again.
// Shows: R4
func TestGroupSendsOnce(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for kind, plant := range faultKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := realWorld(t)
			for range 3 {
				l, faults, count := w.Locker(lockcore.Options{})
				call := sendOnce(t.Context(), l)
				late := 0
				eventually(t, "the source of the script is sent", func() bool { // the source shows the faults the name of the script
					w.Redis.ScriptFlush(t.Context()) // a command of the previous Locker may load the script again
					late += failedCalls([]error{call(0)})
					return count.Count("acquire") > 0
				})
				late += warm(t, call)
				count.Reset()
				f := plant(faults, faulty.Nth(callers/2, faulty.Script("acquire")))
				errs, _ := atOnce(call)
				failed := failedCalls(errs)
				f.Remove()
				time.Sleep(50 * time.Millisecond) // delayed commands are delivered
				if n := count.Count("acquire"); n > callers+late || n < callers-failed || failed == 0 {
					t.Errorf("%d calls, %d without a reply: %d commands, at most %d of them of earlier calls", callers, failed, n, late)
				}
			}
		})
	}
}

// A lost reply delays the calls of its group by a second. The bounds of this test and of the next
// ones contain the delay of the machine, which a control measures.
// Shows: R4
func TestGroupLostReplyReal(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	for range 3 {
		l, faults, _ := w.Locker(lockcore.Options{})
		call := lockAndUnlock(t.Context(), l, long)
		w.Redis.ScriptFlush(t.Context()) // the source shows the faults the name of the script
		if errs, _ := atOnce(call); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		f := faults.LoseReply(faulty.Script("grant_many"))
		start := time.Now()
		errs, slowest := atOnce(call)
		if !struckBy(f) {
			t.Error("no reply was lost")
		}
		if errors.Join(errs...) != nil || slowest > 2500*time.Millisecond+control.Late(start) {
			t.Errorf("the slowest took %v: %v", slowest, errors.Join(errs...))
		}
	}
}

// The server does not reply. Each concurrent call returns an error after its bound of 1 s, and calls
// succeed again soon after the server replies.
// Shows: R4
func TestGroupBound(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	for name, disturb := range map[string]func(*faulty.Network){
		"refused": (*faulty.Network).Down, "black hole": (*faulty.Network).Silence, "replies lost": (*faulty.Network).SilenceReplies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, control := realWorld(t), redistest.NewControl(t)
			l, faults, _ := w.Locker(lockcore.Options{})
			call := sendOnce(t.Context(), l)
			warm(t, call)
			disturb(faults)
			for range 2 {
				start := time.Now()
				errs, slowest := atOnce(call)
				for _, err := range errs {
					if err == nil {
						t.Error("a call without a reply returned no error")
					}
				}
				if slowest > 1500*time.Millisecond+control.Late(start) {
					t.Errorf("the slowest took %v", slowest)
				}
			}
			faults.Heal()
			healed := time.Now()
			warm(t, call)
			if d := time.Since(healed); d > 4*time.Second+control.Late(healed) {
				t.Errorf("calls succeed again after %v", d)
			}
		})
	}
}

// A call of a group returns as soon as its ctx ends, also while the group is under way. A call that
// was sent alone returns within its bound of 1 s.
func TestGroupCancel(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	l, faults, _ := w.Locker(lockcore.Options{})
	warm(t, sendOnce(t.Context(), l))
	faults.Silence()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	var soon atomic.Int64
	call := lockAndUnlock(ctx, l, lockcore.Terms{Wait: lockcore.Forever})
	begin := time.Now()
	errs, slowest := atOnce(func(i int) error {
		err := call(i)
		if time.Since(begin) < 500*time.Millisecond+control.Late(begin) {
			soon.Add(1)
		}
		return err
	})
	const alone = 8 // at most this number of calls is sent alone while round trips take more than a millisecond
	if n := soon.Load(); n < callers-alone || slowest > 1500*time.Millisecond+control.Late(begin) {
		t.Errorf("%d of %d returned at once, the last after %v", n, callers, slowest)
	}
	for _, err := range errs {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%v, want ErrNotRun and the cause of ctx", err)
		}
	}
}

// The server forgets its scripts again and again. No call of a group fails.
func TestGroupScriptFlush(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w := realWorld(t)
	l, _, count := w.Locker(lockcore.Options{})
	var over atomic.Bool
	var flushes atomic.Int64
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for !over.Load() {
			if err := w.Redis.ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			flushes.Add(1)
			time.Sleep(time.Millisecond)
		}
	})
	rounds := 0
	for ; rounds < 30 || flushes.Load() < 10; rounds++ {
		if errs, _ := atOnce(lockAndUnlock(t.Context(), l, long)); errors.Join(errs...) != nil {
			t.Error(errors.Join(errs...))
		}
	}
	over.Store(true)
	flusher.Wait()
	if n := count.Count("grant_many"); n == 0 {
		t.Errorf("no group in %d rounds", rounds)
	}
}

// Close returns within its bound and leaves no goroutine, also while a group without a reply is
// under way.
// Shows: R4
func TestGroupClose(t *testing.T) { // not parallel: it counts goroutines
	testlevel.Campaign(t)
	s, control := redistest.Real(t), redistest.NewControl(t)
	for name, disturb := range map[string]func(*faulty.Network){"quiet": (*faulty.Network).Heal, "silent": (*faulty.Network).Silence} {
		before := goleak.IgnoreCurrent()
		faults := faulty.New(t)
		o := s.Options()
		o.Dialer = faults.Dial(o.Dialer)
		rdb := redis.NewClient(o)
		l, err := lockcore.New(rdb, lockcore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		warm(t, sendOnce(t.Context(), l))
		disturb(faults)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			atOnce(lockAndUnlock(t.Context(), l, lockcore.Terms{Wait: lockcore.Forever}))
		}()
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		start := time.Now()
		err = l.Close(ctx)
		cancel()
		d, late := time.Since(start), control.Late(start)
		if err != nil && late < 300*time.Millisecond || d > 2*time.Second+late { // the bound of a call, 1 s, is less than that of Close
			t.Errorf("%s: Close took %v: %v", name, d, err)
		}
		<-ended
		_ = rdb.Close()
		faults.Heal()
		if err := goleak.Find(before); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
