package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// outer are the ways in which the ctx of a call of Once gets a hold of the account. fn gets a ctx
// of that hold.
var outer = map[string]func(ctx context.Context, f *fixture, fn func(context.Context) error) error{
	"Exclusive": func(ctx context.Context, f *fixture, fn func(context.Context) error) error {
		return guard.Exclusive(ctx, f.locks, "account:42", lockcore.Terms{}, fn)
	},
	"ExclusiveAll": func(ctx context.Context, f *fixture, fn func(context.Context) error) error {
		return guard.ExclusiveAll(ctx, f.locks, []string{"account:42", "account:43"}, lockcore.Terms{}, fn)
	},
	"Shared": func(ctx context.Context, f *fixture, fn func(context.Context) error) error {
		return guard.Shared(ctx, f.locks, "account:42", lockcore.Terms{}, fn)
	},
	"Limited": func(ctx context.Context, f *fixture, fn func(context.Context) error) error {
		return guard.Limited(ctx, f.locks, "account:42", lockcore.Limit{N: 3}, lockcore.Terms{}, fn)
	},
	"Acquire of another Locker": func(ctx context.Context, f *fixture, fn func(context.Context) error) error {
		lease, err := f.other.Acquire(ctx, "account:42", lockcore.Terms{})
		if err != nil {
			return err
		}
		defer func() { _ = lease.Release(ctx) }()
		return fn(lease.Context())
	},
}

// A Once inside a hold of another key does not wait for a run of its own key, unless Wait is set.
// It returns the BusyError, and the outer guard gives the account back.
// Shows: N5
func TestOnceInsideHold(t *testing.T) {
	for name, hold := range outer {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				defer locktest.HoldOnce(t, f.other, "payment:7")()
				for wait, want := range map[time.Duration]time.Duration{0: 0, lockcore.NoWait: 0, 3 * time.Second: 3 * time.Second} {
					var out guard.Outcome
					began := time.Now()
					err := hold(t.Context(), f, func(ctx context.Context) (err error) {
						out, err = guard.Once(ctx, f.locks, "payment:7", guard.OnceOptions{Terms: lockcore.Terms{Wait: wait}}, nothing)
						return err
					})
					busy, ok := errors.AsType[*lockcore.BusyError](err)
					if took := time.Since(began).Round(100 * time.Millisecond); !ok || busy.Key != "payment:7" || out != guard.NotRun || took != want {
						t.Errorf("Wait %v: %v, %v after %v, want the BusyError of the payment after %v", wait, out, err, took, want)
					}
				}
				if err := guard.Exclusive(t.Context(), f.locks, "account:42", noWait, nothing); err != nil {
					t.Error("the account is not free:", err)
				}
			})
		})
	}
}

// Without a hold of another key Once waits. It also waits inside of the run of another Once, whose
// work has begun, and with a ctx whose hold has ended.
// Shows: N5
func TestOnceWaitsOutsideOfHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		defer locktest.HoldOnce(t, f.other, "email:7")()
		email := func(ctx context.Context) error {
			began := time.Now()
			if _, err := guard.Once(ctx, f.locks, "email:7", guard.OnceOptions{}, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Error(err)
			}
			if took := time.Since(began).Round(100 * time.Millisecond); took != 2*time.Second {
				t.Errorf("%v of waiting, want the default of 2s", took)
			}
			return nil
		}
		payment := func(ctx context.Context) error {
			_, err := guard.Once(ctx, f.locks, "payment:7", guard.OnceOptions{Keep: time.Second}, email)
			time.Sleep(2 * time.Second) // until the record is forgotten
			return err
		}
		_ = email(t.Context())
		_ = payment(t.Context())
		ended := t.Context()
		for name, hold := range outer {
			if err := hold(t.Context(), f, payment); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = hold(t.Context(), f, func(ctx context.Context) error { return email(guard.Detach(ctx)) })
			_ = hold(t.Context(), f, func(ctx context.Context) error { ended = context.WithoutCancel(ctx); return nil }) //nolint:fatcontext // the ctx of an ended hold is the point
			_ = email(ended)
		}
	})
}

// A run of payment 7 hangs and keeps its once key. 20 other payments of the account go on, and
// further calls of payment 7 do not delay them.
// Shows: N5
func TestHungPaymentLeavesTheAccount(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				defer locktest.HoldOnce(t, f.other, "payment:7")() // its hold of the account has ended, for example by MaxHold
				pay := func(payment int) error {
					return guard.Exclusive(t.Context(), f.locks, "account:42", lockcore.Terms{Wait: time.Minute}, func(ctx context.Context) error {
						_, err := guard.Once(ctx, f.locks, fmt.Sprint("payment:", payment), guard.OnceOptions{Mode: mode}, func(context.Context) error {
							time.Sleep(10 * time.Millisecond)
							return nil
						})
						return err
					})
				}
				began := time.Now()
				var calls sync.WaitGroup
				for i := range 40 {
					calls.Go(func() {
						payment := 7 // every second call
						if i%2 == 0 {
							payment = 100 + i
						}
						if err := pay(payment); (err == nil) != (payment != 7) || err != nil && !errors.Is(err, lockcore.ErrBusy) {
							t.Errorf("payment %d: %v", payment, err)
						}
					})
				}
				calls.Wait()
				if took := time.Since(began); took > time.Second {
					t.Errorf("20 payments of 10 ms took %v", took)
				}
			})
		})
	}
}

// With AtMostOnce the error of a guard inside the handler, whose function did not run, is recorded
// as a failure. The Observer gets Misconfigured, and the texts of the error and of the record name
// the remedy. A mark on the error is a decision of the program, so it is not reported.
// Shows: O1
func TestOnceRecordsARefusalInside(t *testing.T) {
	const remedy = "nest Exclusive outside of Once"
	refusals := map[string]func(ctx context.Context, f *fixture) error{
		"busy": func(ctx context.Context, f *fixture) error {
			return guard.Exclusive(ctx, f.locks, "account:42", noWait, nothing)
		},
		"no room": func(ctx context.Context, f *fixture) error {
			return guard.Limited(ctx, f.locks, "account:42", lockcore.Limit{N: 1}, noWait, nothing)
		},
		"busy, one of several": func(ctx context.Context, f *fixture) error {
			return guard.ExclusiveAll(ctx, f.locks, []string{"account:1", "account:42"}, noWait, nothing)
		},
		"abandoned": func(ctx context.Context, f *fixture) error {
			_, err := guard.Once(ctx, f.locks, "abandoned", guard.OnceOptions{Mode: guard.AtMostOnce}, nothing)
			return err
		},
		"mismatch": func(ctx context.Context, f *fixture) error {
			o := guard.OnceOptions{Fingerprint: []byte("a")}
			_, _ = guard.Once(ctx, f.locks, "other", o, nothing)
			o.Fingerprint = []byte("b")
			_, err := guard.Once(ctx, f.locks, "other", o, nothing)
			return err
		},
		"nested": func(ctx context.Context, f *fixture) error {
			_, err := guard.Once(ctx, f.locks, "payment:7", guard.OnceOptions{}, nothing)
			return err
		},
		"bad key": func(ctx context.Context, f *fixture) error { return guard.Exclusive(ctx, f.locks, "", noWait, nothing) },
		"bad terms": func(ctx context.Context, f *fixture) error {
			return guard.Limited(ctx, f.locks, "k", lockcore.Limit{}, noWait, nothing)
		},
		"unavailable": func(ctx context.Context, f *fixture) error {
			f.faults.Silence()
			defer f.faults.Heal()
			return guard.Exclusive(ctx, f.locks, "k", noWait, nothing)
		},
		"closed": func(ctx context.Context, _ *fixture) error {
			closed, err := lockcore.NewMemory(lockcore.MemoryOptions{})
			if err == nil {
				err = closed.Close(ctx)
			}
			if err != nil {
				return err
			}
			return guard.Exclusive(ctx, closed, "k", noWait, nothing)
		},
		"wrapped": func(ctx context.Context, f *fixture) error {
			return fmt.Errorf("charge: %w", guard.Exclusive(ctx, f.locks, "account:42", noWait, nothing))
		},
	}
	plain := map[string]func(ctx context.Context, f *fixture) error{
		"no guard": func(context.Context, *fixture) error { return errBoom },
		"ran": func(ctx context.Context, f *fixture) error {
			return guard.Exclusive(ctx, f.locks, "k", noWait, fails(new(int), errBoom))
		},
		"final": func(ctx context.Context, f *fixture) error { return guard.Final(refusals["busy"](ctx, f)) },
	}
	pay := func(t *testing.T, f *fixture, mode guard.Mode, fn func(context.Context, *fixture) error) (problems []string, err error) {
		t.Helper()
		locktest.Abandon(t, f.other, "abandoned")
		defer locktest.Hold(t, f.other, "account:42")()
		_, err = guard.Once(t.Context(), f.locks, "payment:7", guard.OnceOptions{Mode: mode}, func(ctx context.Context) error { return fn(ctx, f) })
		for _, e := range locktest.EventsOf[event.Misconfigured](f.events) {
			problems = append(problems, e.Problem)
		}
		return problems, err
	}
	for name, fn := range refusals {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				problems, err := pay(t, f, guard.AtMostOnce, fn)
				if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), remedy) {
					t.Errorf("error %v, want one that names the remedy", err)
				}
				if len(problems) != 1 || !strings.Contains(problems[0], remedy) {
					t.Errorf("Misconfigured %q, want one that names the remedy", problems)
				}
				out, again := guard.Once(t.Context(), f.other, "payment:7", guard.OnceOptions{Mode: guard.AtMostOnce}, nothing)
				if recorded, ok := errors.AsType[*guard.RecordedError](again); !ok || out != guard.Replayed || recorded.Text != err.Error() {
					t.Errorf("again: %v, %v, want the record %q", out, again, err)
				}
			})
		})
		t.Run(name+", no effect", func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				problems, err := pay(t, f, guard.AtMostOnce, func(ctx context.Context, f *fixture) error { return guard.NoEffect(fn(ctx, f)) })
				if len(problems) > 0 || strings.Contains(err.Error(), remedy) {
					t.Errorf("%v, Misconfigured %q", err, problems)
				}
				if out, err := guard.Once(t.Context(), f.other, "payment:7", guard.OnceOptions{Mode: guard.AtMostOnce}, nothing); out != guard.Ran || err != nil {
					t.Errorf("again: %v, %v", out, err)
				}
			})
		})
		t.Run(name+", at least once", func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				if problems, err := pay(t, f, guard.AtLeastOnce, fn); len(problems) > 0 || strings.Contains(err.Error(), remedy) {
					t.Errorf("%v, Misconfigured %q", err, problems)
				}
			})
		})
	}
	for name, fn := range plain {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				if problems, err := pay(t, f, guard.AtMostOnce, fn); len(problems) > 0 || strings.Contains(err.Error(), remedy) {
					t.Errorf("%v, Misconfigured %q", err, problems)
				}
			})
		})
	}
}
