package main

import (
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// The chapters have the expected results on a Redis inside the process and on a real one.
func TestRun(t *testing.T) {
	testlevel.Full(t)
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		t.Parallel()
		stagetest.Output(
			t, program, args,
			"context deadline exceeded", "no retry is used up", "replayed, not run", "worker A", "worker B", "receipt 1001", `account 42 \(hot\)`,
			`\nasynq alone .* archived\nwith holdfast .* completed\ntwo workers, one account .* completed\n`+
				`one hot account .* completed\none payment, sent twice .* completed\n$`,
		)
	})
}
