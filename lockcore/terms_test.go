package lockcore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// says checks that the text of err contains each of want, and that err is nil if want is empty.
func says(t *testing.T, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("no error, want one that contains %q", want)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v\ndoes not contain %q", err, w)
		}
	}
}

// Validate reports all problems together, each with its field, value and bound. The bounds
// themselves are valid.
func TestTermsValidate(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		terms lockcore.Terms
		want  []string
	}{
		"zero":           {},
		"lower bounds":   {lockcore.Terms{Wait: 1, MaxWaiting: 1, Lease: time.Second, MaxHold: 1, MinHold: 1, Stall: 100 * time.Millisecond}, nil},
		"upper bounds":   {lockcore.Terms{Name: strings.Repeat("n", 128), Wait: day, MaxWaiting: 1_000_000, Lease: time.Hour, MaxHold: 30 * day, MinHold: day, Stall: 30 * day}, nil},
		"no wait":        {lockcore.Terms{Wait: lockcore.NoWait}, nil},
		"forever":        {lockcore.Terms{Wait: lockcore.Forever}, nil},
		"long name":      {lockcore.Terms{Name: strings.Repeat("n", 129)}, []string{"Terms.Name", "129 bytes", "at most 128 bytes"}},
		"short wait":     {lockcore.Terms{Wait: -2}, []string{"Terms.Wait is -2ns", "between 0 and 24h0m0s, NoWait or Forever"}},
		"long wait":      {lockcore.Terms{Wait: day + 1}, []string{"Terms.Wait", "24h0m0s"}},
		"almost forever": {lockcore.Terms{Wait: math.MaxInt64 - 1}, []string{"Terms.Wait"}},
		"no one waits":   {lockcore.Terms{MaxWaiting: -1}, []string{"Terms.MaxWaiting is -1", "between 0 and 1000000"}},
		"many wait":      {lockcore.Terms{MaxWaiting: 1_000_001}, []string{"Terms.MaxWaiting is 1000001"}},
		"short lease":    {lockcore.Terms{Lease: time.Second - 1}, []string{"Terms.Lease is 999.999999ms", "between 1s and 1h0m0s"}},
		"negative":       {lockcore.Terms{Lease: -time.Second}, []string{"Terms.Lease is -1s"}},
		"long lease":     {lockcore.Terms{Lease: time.Hour + 1}, []string{"Terms.Lease", "1h0m0s"}},
		"max hold":       {lockcore.Terms{MaxHold: -1}, []string{"Terms.MaxHold is -1ns", "between 0 and 720h0m0s"}},
		"long hold":      {lockcore.Terms{MaxHold: 30*day + 1}, []string{"Terms.MaxHold"}},
		"min hold":       {lockcore.Terms{MinHold: day + 1}, []string{"Terms.MinHold", "between 0 and 24h0m0s"}},
		"short stall":    {lockcore.Terms{Stall: 1}, []string{"Terms.Stall is 1ns", "between 100ms and 720h0m0s"}},
		"long stall":     {lockcore.Terms{Stall: 30*day + 1}, []string{"Terms.Stall"}},
		"all at once": {
			lockcore.Terms{Name: strings.Repeat("n", 200), Wait: -9, Lease: 1, MaxHold: -1},
			[]string{"Terms.Name", "Terms.Wait", "Terms.Lease", "Terms.MaxHold"},
		},
	} {
		t.Run(name, func(t *testing.T) { says(t, test.terms.Validate(), test.want...) })
	}
}

// Validate and New report all problems of the options together, and New returns no Locker then.
func TestTermsOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	for name, test := range map[string]struct {
		o    lockcore.Options
		want []string
	}{
		"zero":         {},
		"long prefix":  {lockcore.Options{Prefix: strings.Repeat("p", 65)}, []string{"Options.Prefix", "at most 64 printable ASCII"}},
		"full prefix":  {lockcore.Options{Prefix: strings.Repeat("p", 64)}, nil},
		"brace":        {lockcore.Options{Prefix: "a{b"}, []string{`Options.Prefix is "a{b"`, "braces"}},
		"closed brace": {lockcore.Options{Prefix: "a}b"}, []string{"Options.Prefix"}},
		"space":        {lockcore.Options{Prefix: "a b"}, []string{"Options.Prefix"}},
		"not ASCII":    {lockcore.Options{Prefix: "é"}, []string{"Options.Prefix"}},
		"not text":     {lockcore.Options{Prefix: "\xff"}, []string{"Options.Prefix"}},
		"all at once": {
			lockcore.Options{Prefix: "{", Terms: lockcore.Terms{Lease: 1, Wait: -5}},
			[]string{"Options.Prefix", "Terms.Lease", "Terms.Wait"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, test.o.Validate(), test.want...)
			l, err := lockcore.New(rdb, test.o)
			says(t, err, test.want...)
			if (l != nil) != (err == nil) {
				t.Errorf("New returns %v and %v", l, err)
			}
			if l != nil {
				_ = l.Close(t.Context())
			}
		})
	}
}

// New refuses a nil client and a redis.Ring.
func TestTermsClient(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		want string
	}{
		"nil":               {nil, "client is nil"},
		"nil Client":        {(*redis.Client)(nil), "nil *redis.Client"},
		"nil ClusterClient": {(*redis.ClusterClient)(nil), "nil *redis.ClusterClient"},
		"nil Ring":          {(*redis.Ring)(nil), "redis.Ring"},
		"Ring":              {ring, "redis.Ring"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := lockcore.New(test.rdb, lockcore.Options{})
			says(t, err, test.want)
			if l != nil {
				t.Error("New returned a Locker and an error")
			}
		})
	}
}

// The arguments of a call are invalid. The call sends nothing and returns an error with all
// problems.
func TestTermsOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		bad := lockcore.Terms{Lease: 1, Wait: -5}
		long := strings.Repeat("k", 513)
		gone, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		for name, test := range map[string]struct {
			call func() error
			want []string
			is   []error
		}{
			"empty key": {
				func() error { _, err := l.Acquire(t.Context(), "", bad); return err },
				[]string{"empty", "Terms.Lease", "Terms.Wait"},
				[]error{lockcore.ErrKey, lockcore.ErrNotRun},
			},
			"long key": {
				func() error { _, err := l.Acquire(t.Context(), long, noWait); return err },
				[]string{"513 bytes", "at most 512"},
				[]error{lockcore.ErrKey, lockcore.ErrNotRun},
			},
			"ended": {
				func() error { _, err := l.Acquire(gone, "k", noWait); return err },
				[]string{"why"},
				[]error{why, lockcore.ErrNotRun},
			},
			"claim": {
				func() error {
					_, _, err := l.Claim(t.Context(), "", lockcore.Claim{Terms: bad, Keep: 1, Fingerprint: make([]byte, 65)})
					return err
				},
				[]string{"empty", "Terms.Lease", "Claim.Keep is 1ns", "1s and 8784h", "Claim.Fingerprint is 65 bytes", "at most 64"},
				[]error{lockcore.ErrKey, lockcore.ErrNotRun},
			},
			"claim for long": {func() error {
				_, _, err := l.Claim(t.Context(), "k", lockcore.Claim{Keep: 367 * 24 * time.Hour})
				return err
			}, []string{"Claim.Keep"}, []error{lockcore.ErrNotRun}},
			"inspect": {
				func() error { _, err := l.Inspect(t.Context(), event.KindOnce, long); return err },
				[]string{"513 bytes"},
				[]error{lockcore.ErrKey},
			},
			"no kind": {func() error { return l.Revoke(t.Context(), 0, "k") }, []string{`kind is Kind(0)`, "KindExclusive or KindOnce"}, nil},
			"clear":   {func() error { return l.Clear(gone, event.KindOnce, "k") }, []string{"why"}, []error{why}},
		} {
			err := test.call()
			t.Log(name)
			says(t, err, test.want...)
			for _, target := range test.is {
				if !errors.Is(err, target) {
					t.Errorf("%s: %v is not %v", name, err, target)
				}
			}
		}
		if c := count.Commands(); len(c) != 0 {
			t.Errorf("sent %v", c)
		}
		le := w.Must(l.Acquire(t.Context(), long[1:], noWait)) // 512 bytes are allowed
		_ = le.Release(t.Context())
	})
}

// The terms of a call take precedence over those of the Locker, and those over the defaults.
func TestTermsDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		plain := w.Locker(lockcore.Options{})
		if got, want := plain.Terms(), (lockcore.Terms{Wait: 2 * time.Second, Lease: 30 * time.Second}); got != want {
			t.Errorf("defaults %+v, want %+v", got, want)
		}
		l := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: time.Minute, Wait: lockcore.NoWait}})
		for want, terms := range map[time.Duration]lockcore.Terms{time.Minute: {}, 10 * time.Second: {Lease: 10 * time.Second}} {
			le := w.Must(l.Acquire(t.Context(), "k", terms))
			if left := w.Left(plain, "k"); left != want {
				t.Errorf("the remaining lease is %v, want %v", left, want)
			}
			start := time.Now()
			if _, err := l.Acquire(t.Context(), "k", terms); !errors.Is(err, lockcore.ErrBusy) || time.Since(start) > 0 {
				t.Errorf("NoWait: %v after %v", err, time.Since(start))
			}
			if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Second}); !errors.Is(err, lockcore.ErrBusy) || time.Since(start) != time.Second {
				t.Errorf("Wait 1 s: %v after %v", err, time.Since(start))
			}
			synctest.Wait() // the withdrawal is sent in the background
			_ = le.Release(t.Context())
		}
	})
}
