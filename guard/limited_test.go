package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Each function refuses terms that belong to another function. The error names field, value and
// bound, and no handler runs.
func TestSharedBadTerms(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	fn := func(context.Context) error {
		t.Error("it has run")
		return nil
	}
	limited := func(n int, terms lockcore.Terms) error {
		return guard.Limited(t.Context(), locks, "k", n, terms, fn)
	}
	for want, err := range map[string]error{
		"Exclusive: Terms.Limit is 3 and Terms.Weight is 0: Limit and":      guard.Exclusive(t.Context(), locks, "k", lockcore.Terms{Limit: 3}, fn),
		"Shared: Terms.Limit is 0 and Terms.Weight is 2":                    guard.Shared(t.Context(), locks, "k", lockcore.Terms{Weight: 2}, fn),
		"Limited: Terms.Limit is 2":                                         limited(3, lockcore.Terms{Limit: 2}),
		"n is 0, must be between 1 and 1000000":                             limited(0, lockcore.Terms{}),
		"n is 1000001, must be between 1 and 1000000":                       limited(1_000_001, lockcore.Terms{}),
		"Terms.Weight is 4, must be between 0 and n, which is 3":            limited(3, lockcore.Terms{Weight: 4}),
		"Terms.Weight is -1, must be between 0 and n, which is 3":           limited(3, lockcore.Terms{Weight: -1}),
		"ExclusiveAll: Terms.Limit is 3 and Terms.Weight is 0: Limit and":   guard.ExclusiveAll(t.Context(), locks, []string{"k"}, lockcore.Terms{Limit: 3}, fn),
		"guard: Shared: locks and fn must not be nil":                       guard.Shared(t.Context(), nil, "k", lockcore.Terms{}, fn),
		"guard: Limited: locks and fn must not be nil":                      guard.Limited(t.Context(), locks, "k", 1, lockcore.Terms{}, nil),
		"Claim: Terms.Limit is 2 and Terms.Weight is 0, must be 0":          claimed(t.Context(), locks, lockcore.Terms{Limit: 2}),
		"Options.Terms: Terms.Limit is -1 and Terms.Weight is 0, must be 0": lockcore.Options{Terms: lockcore.Terms{Limit: lockcore.Unlimited}}.Validate(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !errors.Is(err, lockcore.ErrNotRun) && !strings.HasPrefix(want, "Options") {
			t.Errorf("%v is not ErrNotRun", err)
		}
	}
}

func claimed(ctx context.Context, locks *lockcore.Locker, terms lockcore.Terms) error {
	_, _, err := locks.Claim(ctx, "k", lockcore.Claim{Terms: terms})
	return err
}
