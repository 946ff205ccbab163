package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// On a majority of servers, Exclusive and ExclusiveAll work as on one server. What needs a record, a
// share or a ticket is refused, and does not run.
func TestQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redistest.Masters(t)
		process := func() *lockcore.Locker {
			l, err := lockcore.NewQuorum(masters, lockcore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(context.Background()) })
			return l
		}
		locks, other := process(), process()
		var first int64
		err := guard.Exclusive(t.Context(), locks, "k", lockcore.Terms{}, func(ctx context.Context) error {
			first, _ = guard.Token(ctx, "k")
			time.Sleep(time.Minute) // two leases
			if err := guard.Exclusive(t.Context(), other, "k", noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("while it is held: %v", err)
			}
			if _, err := guard.Ticket(ctx, "k", time.Minute); !errors.Is(err, lockcore.ErrUnsupported) {
				t.Errorf("Ticket: %v", err)
			}
			return errors.Join(ctx.Err(), guard.Exclusive(ctx, locks, "k", noWait, nothing))
		})
		if err != nil {
			t.Error(err)
		}
		err = guard.ExclusiveAll(t.Context(), other, []string{"k", "l"}, lockcore.Terms{}, func(ctx context.Context) error {
			if token, held := guard.Token(ctx, "k"); !held || token <= first {
				t.Errorf("token %d after %d", token, first)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for name, call := range map[string]func(func(context.Context) error) error{
			"once keys": func(fn func(context.Context) error) error {
				_, err := guard.Once(t.Context(), locks, "o", guard.OnceOptions{}, fn)
				return err
			},
			"shares": func(fn func(context.Context) error) error {
				return guard.Limited(t.Context(), locks, "s", lockcore.Limit{N: 2}, lockcore.Terms{}, fn)
			},
			"the order of triggers": func(fn func(context.Context) error) error {
				_, err := guard.Latest(t.Context(), locks, "l", lockcore.Terms{}, fn)
				return err
			},
			"shares: use one Redis": func(fn func(context.Context) error) error {
				return guard.Shared(t.Context(), locks, "s", lockcore.Terms{}, fn)
			},
		} {
			runs := 0
			err := call(fails(&runs, nil))
			if !errors.Is(err, lockcore.ErrUnsupported) || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), name) || runs > 0 {
				t.Errorf("%s: %v, %d runs", name, err, runs)
			}
		}
	})
}
