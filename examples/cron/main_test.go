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
			"run number 2", "leaves the tick to the others", "is cut off in the middle", "lease lost", "took over and is done",
			`taken over\na lock on the job's name .*\na key for each tick .*\nthe winner is cut off .*\n$`,
		)
	})
}
