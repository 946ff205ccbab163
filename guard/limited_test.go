package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A limit that is not valid is an error that names field, value and bound, and no handler runs.
func TestSharedBadTerms(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	fn := func(context.Context) error {
		t.Error("it has run")
		return nil
	}
	limited := func(n lockcore.Limit) error {
		return guard.Limited(t.Context(), locks, "k", n, lockcore.Terms{}, fn)
	}
	for want, err := range map[string]error{
		"Limited: Limit.N is 0, must be between 1 and 1000000, or Unlimited": limited(lockcore.Limit{}),
		"Limit.N is 1000001, must be between 1 and 1000000, or Unlimited":    limited(lockcore.Limit{N: 1_000_001}),
		"Limit.N is -2, must be between 1 and 1000000, or Unlimited":         limited(lockcore.Limit{N: -2}),
		"Limit.Weight is 4, must be between 0 and N, which is 3":             limited(lockcore.Limit{N: 3, Weight: 4}),
		"Limit.Weight is -1, must be between 0 and N, which is 3":            limited(lockcore.Limit{N: 3, Weight: -1}),
		"Limit.Weight is 1, must be 0 with Unlimited":                        limited(lockcore.Limit{N: lockcore.Unlimited, Weight: 1}),
		"guard: Shared: locks and fn must not be nil":                        guard.Shared(t.Context(), nil, "k", lockcore.Terms{}, fn),
		"guard: Limited: locks and fn must not be nil":                       guard.Limited(t.Context(), locks, "k", lockcore.Limit{N: 1}, lockcore.Terms{}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%v is not ErrNotRun", err)
		}
	}
}
