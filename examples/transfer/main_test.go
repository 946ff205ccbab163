package main

import (
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// The story has the expected output, on a Redis inside the process and on a real one.
func TestRun(t *testing.T) {
	stagetest.OnEach(t, func(t *testing.T, args ...string) {
		const want = `POST /reports: 202 the report will be made (replayed: false)
POST /reports: 202 the report will be made (replayed: true)
worker: adopts the request
worker: fails
worker: claims the request, because the ticket is used
worker: makes the report
POST /reports: 201 the report of October (replayed: true)
`
		if out := stagetest.Output(t, program, args); out != want {
			t.Errorf("got:\n%s\nwant:\n%s", out, want)
		}
	})
}
