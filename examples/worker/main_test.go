package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// The story has the expected result on a Redis inside the process and on a real one. It leaves the
// other keys of the real one untouched.
func TestRun(t *testing.T) {
	testlevel.Full(t)
	t.Setenv("REDIS_ADDR", "")
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		story(t)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		server := redistest.Real(t)
		rdb := server.Client(t)
		if err := rdb.Set(context.Background(), "mine", "untouched", 0).Err(); err != nil {
			t.Fatal(err)
		}
		story(t, "-redis", server.Addr())
		if keys, err := rdb.Keys(context.Background(), "*").Result(); err != nil || !slices.Equal(keys, []string{"mine"}) {
			t.Errorf("keys left: %q, %v", keys, err)
		}
	})
}

func story(t *testing.T, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := tell(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	_, table, _ := strings.Cut(out.String(), "runs   most at once   final state\n")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	want := []string{"archived", "completed", "completed", "completed", "completed"}
	if len(lines) != len(want) {
		t.Fatalf("table:\n%s", table)
	}
	for i, state := range want {
		if !strings.HasPrefix(lines[i], chapters[i].title) || !strings.HasSuffix(lines[i], state) {
			t.Errorf("row %q, want %q … %s", lines[i], chapters[i].title, state)
		}
	}
	for _, word := range []string{"context deadline exceeded", "no retry is used up", "replayed, not run", "worker A", "worker B", "receipt 1001", "account 42 (hot)"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the output lacks %q:\n%s", word, &out)
		}
	}
}

// A run that cannot work returns an error at once.
func TestRunErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"-rediss":     {"-rediss", "x"},
		`"x"`:         {"x"},
		"127.0.0.1:1": {"-redis", "127.0.0.1:1"},
	} {
		if err := tell(t.Context(), args, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tell(ended, nil, new(bytes.Buffer)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := tell(t.Context(), []string{"-help"}, new(bytes.Buffer)); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
