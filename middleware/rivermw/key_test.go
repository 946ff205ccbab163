package rivermw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/rivermw"
)

type renamedArgs struct {
	Account string `json:"account"`
}

func (renamedArgs) Kind() string          { return "charge/v2" }
func (renamedArgs) KindAliases() []string { return []string{"charge"} }

func TestKeys(t *testing.T) {
	t.Parallel()
	byArgs := rivermw.ByArgs(func(a renamedArgs) guard.Key { return guard.Key{Class: "account", ID: a.Account} })
	for _, c := range []struct {
		key              rivermw.KeyFunc
		kind, args, want string // want: the key, or a part of the error
	}{
		{rivermw.ByJSON("account", "/account"), "charge", `{"account": 42}`, "account:42"},
		{rivermw.ByJSON("account", "/a", "/b/0"), "charge", `{"a": "x,y", "b": [true]}`, "account:x%2Cy,true"},
		{rivermw.ByJSON("account", "/account"), "charge", `{}`, `no value at "/account"`},
		{rivermw.ByJSON("account", "/account"), "charge", `{`, "not JSON"},
		{rivermw.ByJobID(), "charge", ``, "job:17"},
		{byArgs, "charge/v2", `{"account": "42"}`, "account:42"},
		{byArgs, "charge", `{"account": "42"}`, "account:42"},
		{byArgs, "refund", `{"account": "42"}`, guard.Unguarded.Error()},
		{byArgs, "charge", `{"account": 42}`, "the args do not decode"},
	} {
		k, err := c.key(t.Context(), &rivertype.JobRow{ID: 17, Kind: c.kind, EncodedArgs: []byte(c.args)})
		if err == nil && k.String() != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %s, %v; want %s", c.kind, c.args, k, err, c.want)
		}
	}
	if k := rivermw.OnceKey("charge/v2", guard.Key{Class: "payment", ID: "7/8"}); k != "charge%2Fv2/payment:7/8" {
		t.Error(k)
	}
}

// A middleware or KeyFunc that cannot work panics when it is made, with each problem.
func TestInvalid(t *testing.T) {
	t.Parallel()
	locks, bad := locktest.New(t), lockcore.Terms{Lease: -1}
	for want, make := range map[string]func(){
		"rivermw: Exclusive: locks must not be nil; key must not be nil": func() { rivermw.Exclusive(nil, nil, rivermw.ExclusiveOptions{}) },
		"ExclusiveOptions.Busy is 9":                                     func() { rivermw.Exclusive(locks, byAccount, rivermw.ExclusiveOptions{Terms: bad, Busy: 9}) },
		"LimitedOptions.Busy is -1":                                      func() { rivermw.Limited(locks, byAccount, 0, rivermw.LimitedOptions{Busy: -1}) },
		"Limit.N is 0":                                                   func() { rivermw.Limited(locks, byAccount, 0, rivermw.LimitedOptions{}) },
		"ThrottleOptions.Busy is 9":                                      func() { rivermw.Throttled(locks, byAccount, lockcore.Rate{}, rivermw.ThrottleOptions{Busy: 9}) },
		"OnceOptions.Keep is 1ns":                                        func() { rivermw.Once(locks, byAccount, rivermw.OnceOptions{Keep: 1}) },
		"rivermw: Wake: config must not be nil":                          func() { rivermw.Wake[int](nil) },
		"rivermw: ByJSON: at least one pointer is needed":                func() { rivermw.ByJSON("account") },
		"rivermw: ByJSON: class is":                                      func() { rivermw.ByJSON("a:b", "/x") },
		`rivermw: ByJSON: JSON pointer "x" does not begin`:               func() { rivermw.ByJSON("account", "x") },
		"rivermw: ByArgs: key must not be nil":                           func() { rivermw.ByArgs[renamedArgs](nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("panic %q, want %q", text, want)
				}
			}()
			make()
		}()
	}
	for b, want := range map[rivermw.ConflictPolicy]string{rivermw.RetryLater: "RetryLater", rivermw.Skip: "Skip", rivermw.Cancel: "Cancel", rivermw.Fail: "Fail", 9: "ConflictPolicy(9)"} {
		if b.String() != want {
			t.Errorf("%v, want %s", b, want)
		}
	}
}

// Without a server a job comes back later and later, and soon after the server is back.
// Shows: J1
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, faults := locktest.NewServer(t), locktest.NewFaults(t)
		m := rivermw.Exclusive(server.Locker(lockcore.Options{}, faults), rivermw.ByJobID(), rivermw.ExclusiveOptions{})
		work := func() (delay time.Duration, ran bool) {
			err := m.Work(t.Context(), &rivertype.JobRow{ID: 17}, func(context.Context) error { ran = true; return nil })
			if s, ok := errors.AsType[*rivertype.JobSnoozeError](err); ok {
				return s.Duration, ran
			} else if err != nil {
				t.Error(err)
			}
			return 0, ran
		}
		for range 2 {
			faults.Down()
			began := time.Now()
			for _, after := range []time.Duration{0, 20 * time.Second, time.Hour} {
				time.Sleep(after)
				least := min(max(time.Since(began), time.Second), time.Minute)
				if d, ran := work(); ran || d < least || d > 2*least+4*time.Second {
					t.Errorf("delay %v after %v, ran: %v", d, time.Since(began), ran)
				}
			}
			faults.Heal()
			time.Sleep(time.Minute)
			if d, ran := work(); !ran || d != 0 {
				t.Errorf("delay %v, ran: %v", d, ran)
			}
		}
	})
}

// A Once inside an Exclusive does not wait, and gives the key of the Exclusive back.
func TestOnceInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		release := locktest.HoldOnce(t, locks, "charge/payment:7")
		outer := rivermw.Exclusive(locks, byAccount, rivermw.ExclusiveOptions{})
		inner := rivermw.Once(locks, byPayment, rivermw.OnceOptions{})
		job := &rivertype.JobRow{ID: 17, Kind: "charge", EncodedArgs: []byte(`{"account_id": "42", "payment_id": 7}`)}
		began, ran := time.Now(), 0
		work := func() error {
			return outer.Work(t.Context(), job, func(ctx context.Context) error {
				return inner.Work(ctx, job, func(ctx context.Context) error {
					ran++
					if h, _ := guard.Current(ctx); h.Key != "charge/payment:7" {
						t.Errorf("holds %q", h.Key)
					}
					return nil
				})
			})
		}
		if err := work(); !errors.Is(err, (*river.JobSnoozeError)(nil)) || !errors.Is(err, lockcore.ErrBusy) || ran > 0 || time.Since(began) > 0 {
			t.Errorf("%v after %v, %d runs", err, time.Since(began), ran)
		}
		locktest.Hold(t, locks, "account:42")()
		release()
		for range 2 {
			if err := work(); err != nil || ran != 1 {
				t.Errorf("%v, %d runs", err, ran)
			}
		}
	})
}
