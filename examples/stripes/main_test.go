package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// With 120 segments 120 times as many orders succeed as with one key, and no unit is sold twice, in
// memory and on a real Redis.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if out := output(t); !strings.Contains(out, "120        1200        ") || !strings.Contains(out, "240 orders, 120 times sold out") {
				t.Errorf("output:\n%s", out)
			}
		})
	})
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t)
		output(t, "-redis", redistest.Real(t).Addr())
	})
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("\n%s", &out)
	return out.String()
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

// An order ends with the error of its ctx, and with that of a closed Locker.
func TestOrderFails(t *testing.T) {
	locks, closeLocks, err := open("")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{locks, newTable(2, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.order(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := closeLocks(); err != nil {
		t.Error(err)
	}
	if _, err := ordersPerSecond(t.Context(), s, 1); !errors.Is(err, lockcore.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestArguments(t *testing.T) {
	if err := run(t.Context(), []string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	if err := run(t.Context(), []string{"more"}, io.Discard); err == nil || !strings.Contains(err.Error(), `"more"`) {
		t.Errorf("got %v", err)
	}
}
