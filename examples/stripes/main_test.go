package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// With 120 segments 120 times as many orders succeed as with one key, and no unit is sold twice, in
// memory and on a real Redis.
func TestRun(t *testing.T) {
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		if len(args) > 0 {
			stagetest.Output(t, program, args)
			return
		}
		synctest.Test(t, func(t *testing.T) {
			stagetest.Output(t, program, nil, "120        1200        ", "240 orders, 120 times sold out")
		})
	})
}

// A hold that is older than the last one that wrote to a segment writes nothing.
func TestStale(t *testing.T) {
	stock := newTable(1, 10)
	if err := stock.take(0, 7); err != nil {
		t.Error(err)
	}
	if err := stock.take(0, 6); !errors.Is(err, errStale) || stock.units() != 9 {
		t.Errorf("%v, %d units are left", err, stock.units())
	}
}

// An order ends with the error of its ctx, and of a closed Locker.
func TestOrderFails(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{locks, newTable(2, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.order(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := ordersPerSecond(t.Context(), s, 1); !errors.Is(err, lockcore.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
