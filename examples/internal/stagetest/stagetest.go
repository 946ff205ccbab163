// Package stagetest tests the example programs.
package stagetest

import (
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// Main is the TestMain of a program: no goroutine is left.
func Main(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// OnEach calls test for a Redis inside the process and, at level full, for a real one. test passes
// args to the program, which must leave only the keys of others on the real one.
func OnEach(t *testing.T, test func(t *testing.T, args ...string)) {
	t.Helper()
	t.Setenv("REDIS_ADDR", "")
	t.Run("memory", func(t *testing.T) { test(t) })
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t)
		server := redistest.Real(t)
		rdb := server.Client(t)
		if err := rdb.Set(t.Context(), "mine", "untouched", 0).Err(); err != nil {
			t.Fatal(err)
		}
		test(t, "-redis", server.Addr())
		if keys, err := rdb.Keys(t.Context(), "*").Result(); err != nil || !slices.Equal(keys, []string{"mine"}) {
			t.Errorf("keys left: %q, %v", keys, err)
		}
	})
}

// Output runs p to its end, and returns what it prints. The test fails unless each of the regular
// expressions want matches a part of it.
func Output(t *testing.T, p stage.Program, args []string, want ...string) string {
	t.Helper()
	var out strings.Builder
	if err := p.Run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, w := range want {
		if !regexp.MustCompile(w).MatchString(out.String()) {
			t.Errorf("the output lacks %q:\n%s", w, &out)
		}
	}
	return out.String()
}

// Start starts p. out has what it prints. stop ends p, and fails the test if p returns an error.
func Start(t *testing.T, p stage.Program, args ...string) (out io.Reader, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() { // ends when ctx does
		err := p.Run(ctx, args, stdout)
		_ = stdout.CloseWithError(err)
		ended <- err
	}()
	return out, func() {
		t.Helper()
		cancel()
		_, _ = io.Copy(io.Discard, out) // until p has ended
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// WantError runs p, which cannot work with args: it returns an error that contains want.
func WantError(t *testing.T, p stage.Program, want string, args ...string) {
	t.Helper()
	if err := p.Run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%q: %v, want %q", args, err, want)
	}
}
