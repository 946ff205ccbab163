package lockcore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// notRun has an error for each class of calls that did not run.
var notRun = map[error]error{
	lockcore.ErrBusy: &lockcore.BusyError{}, lockcore.ErrAbandoned: &lockcore.AbandonedError{},
	lockcore.ErrMismatch: &lockcore.MismatchError{}, lockcore.ErrUnavailable: lockcore.ErrUnavailable,
	lockcore.ErrClosed: lockcore.ErrClosed, lockcore.ErrKey: lockcore.ErrKey, lockcore.ErrRecord: lockcore.ErrRecord,
	lockcore.ErrNested: lockcore.ErrNested,
}

// Each error matches its own class and ErrNotRun, also when it is wrapped, and no other class.
func TestErrorsIs(t *testing.T) {
	ended := []error{lockcore.ErrLost, lockcore.ErrMaxHold, lockcore.ErrRevoked, lockcore.ErrReleased, lockcore.ErrGivenUp}
	for class, err := range notRun {
		for _, err := range []error{class, err, fmt.Errorf("%w: more", err), errors.Join(errors.New("x"), err)} {
			if !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("%v is not ErrNotRun", err)
			}
			for other := range notRun {
				if errors.Is(err, other) != (other == class) { //nolint:errorlint // exactly this class
					t.Errorf("errors.Is(%v, %v) is %v", err, other, other != class) //nolint:errorlint // exactly this class
				}
			}
			for _, other := range ended {
				if errors.Is(err, other) {
					t.Errorf("%v is %v", err, other)
				}
			}
		}
		if errors.Is(lockcore.ErrNotRun, class) { //nolint:staticcheck // SA1032: the wrong way round on purpose
			t.Errorf("ErrNotRun alone is %v", class)
		}
	}
	for _, err := range ended {
		if errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%v is of a call that ran, but is ErrNotRun", err)
		}
	}
}

// The errors that have an ErrorType return it.
func TestErrorsType(t *testing.T) {
	for want, class := range map[string]error{
		"busy": lockcore.ErrBusy, "abandoned": lockcore.ErrAbandoned, "mismatch": lockcore.ErrMismatch,
	} {
		typed, ok := notRun[class].(interface{ ErrorType() string })
		if !ok || typed.ErrorType() != want {
			t.Errorf("%T has no ErrorType %q", notRun[class], want)
		}
	}
}

// RetryAfter of a BusyError depends on the time held and on the remaining lease, and is between a
// second and a minute.
func TestErrorsRetryAfter(t *testing.T) {
	const s = time.Second
	for _, test := range []struct{ held, left, want time.Duration }{
		{0, 30 * s, s},
		{500 * time.Millisecond, 30 * s, s},
		{10 * s, 30 * s, 10 * s},
		{40 * s, 30 * s, 30 * s}, // the key is free by then if the holder died
		{10 * time.Minute, time.Hour, time.Minute},
		{10 * s, 0, s}, // the key is reserved, or its lease is about to expire
		{10 * s, -s, s},
	} {
		e := &lockcore.BusyError{Holder: event.Holder{Host: "web-1"}, HeldFor: test.held, Remaining: test.left}
		if got := e.RetryAfter(); got != test.want {
			t.Errorf("held for %v, %v left: %v, want %v", test.held, test.left, got, test.want)
		}
	}
	for left, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, 20 * s: 20 * s, 0: s} {
		if got := (&lockcore.BusyError{Remaining: left}).RetryAfter(); got != want {
			t.Errorf("cooling for %v: %v, want %v", left, got, want)
		}
	}
}

// The text of an error names the key, the holder and the time held, on one line.
func TestErrorsText(t *testing.T) {
	holder := event.Holder{Host: "web-1", PID: 7, Task: "task\n9"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{&lockcore.BusyError{Key: "k\n", Holder: holder, HeldFor: 1234567 * time.Microsecond}, `"k\n" is busy: held for 1.235s by web-1/7 task "task\n9"; if that has died it is free in 0s`},
		{&lockcore.BusyError{Key: "k", Holder: holder, HeldFor: time.Second, Local: true}, `"k" is busy: held for 1s by web-1/7 task "task\n9", another call of this process`},
		{&lockcore.BusyError{Key: "k", Holder: holder, HeldFor: time.Second, Local: true, Nested: true}, `"k" is busy: held for 1s by web-1/7 task "task\n9"; held by a nested call of this hold`},
		{&lockcore.BusyError{Key: "k", Holder: holder, HeldFor: time.Second, Remaining: time.Minute, Shares: 3}, `"k" is busy: shares of weight 3 are held, a lease that blocks this call ends in 1m0s unless it is renewed; the last share was granted to web-1/7 task "task\n9"`},
		{&lockcore.BusyError{Key: "k", Remaining: time.Hour}, `"k" is busy: its last run has ended, it is kept for another 1h0m0s`},
		{&lockcore.AbandonedError{Key: "k", Holder: event.Holder{Host: "h"}, Attempt: 2}, `"k" was abandoned: attempt 2 was begun 0s ago by h/0`},
		{&lockcore.MismatchError{Key: "k"}, `"k" is running or abandoned with another`},
		{&lockcore.MismatchError{Key: "k", Done: true}, `"k" is done with another`},
	} {
		if got := test.err.Error(); !strings.Contains(got, test.want) || strings.Contains(got, "\n") || strings.Contains(got, "pass on") {
			t.Errorf("%q does not say %q, or gives advice for a mistake that the call may not have made", got, test.want)
		}
	}
}

// BusyError shows the holder of the key. Control characters, long names and a forged value in Redis
// do no harm.
func TestErrorsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		stranger, _, _ := w.Locker(lockcore.Options{}) // it reads the holder from Redis; l may know it already
		for task, want := range map[string]string{
			"": "", "asynq:42": "asynq:42", "two\nlines\x00\x7f": "twolines", strings.Repeat("é", 100): strings.Repeat("é", 64),
		} {
			le := w.Must(l.Acquire(lockcore.WithTask(t.Context(), task), "k", noWait))
			time.Sleep(3 * time.Second)
			for _, asks := range []*lockcore.Locker{l, stranger} {
				_, err := asks.Acquire(t.Context(), "k", noWait)
				var busy *lockcore.BusyError
				if !errors.As(err, &busy) {
					t.Fatal(err)
				}
				if h := busy.Holder; h.Locker != l.ID() || h.Host == "" || h.PID == 0 || h.Task != want || busy.HeldFor != 3*time.Second || busy.Key != "k" {
					t.Errorf("task %q: %+v", task, busy)
				}
			}
			_ = le.Release(t.Context())
		}
		hash := storedNames(event.KindExclusive, "k")[0]
		le := w.Must(l.Acquire(t.Context(), "k", noWait))
		for who, want := range map[string]event.Holder{
			"": {}, "junk": {}, "a\nb": {}, "h\nx\nt\np\nq": {Host: "h", Task: "t", Traceparent: "p\nq"}, "\n\n\n": {},
		} {
			ok(t, redistest.Unfold(t.Context(), w.Redis, hash))
			w.Memory.Redis.HSet(hash, "m", who)
			_, err := stranger.Acquire(t.Context(), "k", noWait)
			var busy *lockcore.BusyError
			want.Locker = l.ID()
			if !errors.As(err, &busy) || busy.Holder != want {
				t.Errorf("%q: %v, %+v", who, err, busy)
			}
		}
		_ = le.Release(t.Context())
	})
}
