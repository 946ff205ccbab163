package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // these tests cause faults
	goleak.VerifyTestMain(m)
}

// fixture has two Lockers, which represent two processes on one Redis. The connections of the first
// one pass through faults.
type fixture struct {
	locks, other *lockcore.Locker
	faults       *faulty.Network
	count        *redistest.Counter
	memory       *redistest.Memory
	events       *locktest.Recorder
}

func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a dead server replies again
		m := redistest.Bubble(t)
		f := &fixture{memory: m, faults: faulty.New(t), count: new(redistest.Counter), events: new(locktest.Recorder)}
		locker := func(o lockcore.Options, edit ...func(*redis.Options)) *lockcore.Locker {
			rdb := m.Client(t, edit...)
			o.NoGroups = true // tests count the commands of each call
			l, err := lockcore.New(rdb, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				f.faults.Heal()
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = l.Close(ctx)
			})
			return l
		}
		f.locks = locker(lockcore.Options{Observer: f.events}, func(o *redis.Options) { o.Dialer = f.count.Dial(f.faults.Dial(o.Dialer)) })
		f.other = locker(lockcore.Options{})
		test(t, f)
	})
}

var (
	errBoom = errors.New("boom")
	noWait  = lockcore.Terms{Wait: lockcore.NoWait}
)

func nothing(context.Context) error { return nil }

// fails returns a handler that counts its runs and returns err each time.
func fails(runs *int, err error) func(context.Context) error {
	return func(context.Context) error { *runs++; return err }
}

func panics(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// The handler panics. The key is released, and the panic passes through Exclusive.
func TestExclusivePanic(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		if v := panics(func() {
			_ = guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, func(context.Context) error { panic("oh") })
		}); v != "oh" {
			t.Errorf("recovered %v", v)
		}
		if err := guard.Exclusive(t.Context(), f.other, "k", noWait, nothing); err != nil {
			t.Error(err)
		}
	})
}

// The handler ignores its ctx. The key stays held until it returns, after any time. Exclusive
// returns an error if the lease ended before, and none if only the caller's ctx did.
// Shows: L1, B1
func TestExclusiveIgnoresCtx(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := guard.Exclusive(ctx, f.locks, "k", lockcore.Terms{}, func(context.Context) error {
			time.Sleep(10 * time.Minute)
			if err := guard.Exclusive(t.Context(), f.other, "k", noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("free while the handler runs: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("the key was held all the time, want no error: %v", err)
		}
		err = guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{MaxHold: time.Second}, func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		if !errors.Is(err, lockcore.ErrMaxHold) || errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("it ran longer than MaxHold, want ErrMaxHold without ErrNotRun: %v", err)
		}
	})
}

// Close gives up the lease of a handler that then returns nil. The error is ErrGivenUp, and not
// ErrNotRun.
// Shows: I14
func TestExclusiveGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		err := guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, func(context.Context) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := f.locks.Close(ctx); err == nil {
				t.Error("Close returned no error although a lease was held")
			}
			return nil
		})
		if !errors.Is(err, lockcore.ErrGivenUp) || errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("want ErrGivenUp without ErrNotRun: %v", err)
		}
	})
}

// The first attempt fails and the redelivery runs. Exclusive returns the handler's error unchanged.
func TestExclusiveFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		for range 2 {
			if err := guard.Exclusive(t.Context(), f.locks, "k", noWait, fails(&runs, errBoom)); err != errBoom { //nolint:errorlint // unchanged is the point
				t.Errorf("got %v", err)
			}
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Redis executes a command, and its reply is lost. For each command the handler runs once, and the
// key is free afterwards.
// Shows: L12
func TestExclusiveLostReply(t *testing.T) {
	for _, script := range []string{"acquire", "release"} {
		t.Run(script, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				runs := 0
				_ = guard.Exclusive(t.Context(), f.locks, "warm", noWait, nothing)
				f.faults.LoseReply(faulty.Script(script))
				if err := guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, fails(&runs, nil)); err != nil || runs != 1 {
					t.Errorf("%d runs, %v", runs, err)
				}
				if err := guard.Exclusive(t.Context(), f.other, "k", noWait, nothing); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Ten nested calls send the commands of one call.
// Shows: N1
func TestExclusiveNested(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		_ = guard.Exclusive(t.Context(), f.locks, "k", noWait, nothing)
		f.count.Reset()
		depth := 0
		var dive func(ctx context.Context) error
		dive = func(ctx context.Context) error {
			guard.MustHold(ctx, "k")
			if depth++; depth > 10 {
				return nil
			}
			return guard.Exclusive(ctx, f.locks, "k", noWait, dive)
		}
		if err := guard.Exclusive(t.Context(), f.locks, "k", noWait, dive); err != nil {
			t.Error(err)
		}
		if got := f.count.Commands(); !slices.Equal(got, []string{"acquire", "release"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// MustHold panics for a key that is not held, on a detached ctx, after the release, and on a ctx
// without a hold.
func TestMustHold(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var after context.Context
		_ = guard.Exclusive(t.Context(), f.locks, "k", noWait, func(ctx context.Context) error {
			after = ctx //nolint:fatcontext // what a leaked ctx is good for is the question
			if _, ok := guard.Token(ctx, "k"); !ok {
				t.Error("no token inside")
			}
			for name, bad := range map[string]func(){
				"other key": func() { guard.MustHold(ctx, "other") },
				"detached":  func() { guard.MustHold(guard.Detach(ctx), "k") },
			} {
				if panics(bad) == nil {
					t.Errorf("%s: no panic", name)
				}
			}
			return nil
		})
		if panics(func() { guard.MustHold(after, "k") }) == nil || panics(func() { guard.MustHold(t.Context(), "k") }) == nil {
			t.Error("no panic outside")
		}
	})
}

// Bad input causes an error that names it and satisfies ErrNotRun. The handler does not run.
func TestBadInput(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		runs := 0
		run := fails(&runs, nil)
		for name, c := range map[string]struct {
			err  error
			want string
		}{
			"nil fn":      {guard.Exclusive(t.Context(), f.locks, "k", noWait, nil), "fn"},
			"nil locks":   {guard.Exclusive(t.Context(), nil, "k", noWait, run), "locks"},
			"empty key":   {guard.Exclusive(t.Context(), f.locks, "", noWait, run), "empty"},
			"short lease": {guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{Lease: 1}, run), "Terms.Lease"},
			"once nil":    {once(t, f.locks, "k", guard.OnceOptions{}, nil), "guard: Once: locks and fn"},
			"once on nil": {once(t, nil, "k", guard.OnceOptions{}, run), "guard: Once: locks and fn"},
			"keep":        {once(t, f.locks, "k", guard.OnceOptions{Keep: -1}, run), "Keep"},
			"mode":        {once(t, f.locks, "k", guard.OnceOptions{Mode: 7}, run), "Mode"},
			"max result":  {once(t, f.locks, "k", guard.OnceOptions{MaxResult: -1}, run), "MaxResult"},
			"fingerprint": {once(t, f.locks, "k", guard.OnceOptions{Fingerprint: make([]byte, 65)}, run), "Fingerprint"},
			"long key":    {once(t, f.locks, strings.Repeat("x", 513), guard.OnceOptions{}, run), "512"},
		} {
			if !errors.Is(c.err, lockcore.ErrNotRun) || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		if runs != 0 {
			t.Errorf("%d runs", runs)
		}
	})
}

func once(t *testing.T, l *lockcore.Locker, key string, o guard.OnceOptions, fn func(context.Context) error) error {
	t.Helper()
	_, err := guard.Once(t.Context(), l, key, o, fn)
	return err
}

// heard reports whether there was an event of type E, and deletes all events.
func heard[E event.Event](r *locktest.Recorder) bool {
	defer r.Reset()
	return len(locktest.EventsOf[E](r)) > 0
}
