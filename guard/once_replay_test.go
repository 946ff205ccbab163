package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

type lossy struct {
	ID     string
	amount int
}

func inMemory(t *testing.T) *lockcore.Locker {
	t.Helper()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// A result whose type has an unexported field is refused before the work runs. The key stays free.
// Shows: O10
func TestOnceLossyType(t *testing.T) {
	locks := inMemory(t)
	runs := 0
	work := func(context.Context) (lossy, error) { runs++; return lossy{"r", 7}, nil }
	for range 2 {
		res, err := guard.OnceValue(t.Context(), locks, "k", guard.OnceOptions{}, work)
		if res.Outcome != guard.NotRun || !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(err.Error(), "lossy.amount") {
			t.Errorf("got %v and error %v", res.Outcome, err)
		}
	}
	if status, err := idempotency.Lookup(t.Context(), locks, "k"); err != nil || status.State != lockcore.StateFree || runs != 0 {
		t.Errorf("the key is %v, %v, after %d runs", status.State, err, runs)
	}
}

// A record that was made before such results were refused is replayed.
// Shows: O10
func TestOnceLossyTypeReplays(t *testing.T) {
	locks := inMemory(t)
	type recorded struct{ ID string }
	if _, err := guard.OnceValue(t.Context(), locks, "k", guard.OnceOptions{}, func(context.Context) (recorded, error) { return recorded{"r"}, nil }); err != nil {
		t.Fatal(err)
	}
	res, err := guard.OnceValue(t.Context(), locks, "k", guard.OnceOptions{}, func(context.Context) (lossy, error) { return lossy{}, nil })
	if err != nil || res.Outcome != guard.Replayed || res.Value.ID != "r" {
		t.Errorf("got %+v, %v", res, err)
	}
}

// The type of a result may come back, but its value does not. The work has run: the call returns
// the value with an error, and the key is done without a result.
// Shows: O10
func TestOnceLossyValue(t *testing.T) {
	locks := inMemory(t)
	type answer struct{ Receipt *lossy }
	work := func(context.Context) (answer, error) { return answer{&lossy{"r", 7}}, nil }
	res, err := guard.OnceValue(t.Context(), locks, "k", guard.OnceOptions{}, work)
	if res.Outcome != guard.Ran || !res.NotKept || res.Value.Receipt == nil || err == nil || !strings.Contains(err.Error(), "answer.Receipt.amount") {
		t.Errorf("got %+v and error %v", res, err)
	}
	if res, err := guard.OnceValue(t.Context(), locks, "k", guard.OnceOptions{}, work); res.Outcome != guard.Replayed || !errors.Is(err, guard.ErrNoResult) {
		t.Errorf("then %+v and error %v", res, err)
	}
}
