package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// The story has the expected output, on a Redis inside the process and on a real one.
func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	t.Run("memory", func(t *testing.T) { tellStory(t) })
	t.Run("real", func(t *testing.T) {
		testlevel.Full(t)
		tellStory(t, "-redis", redistest.Real(t).Addr())
	})
}

func tellStory(t *testing.T, args ...string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	const want = `POST /reports: 202 the report will be made (replayed: false)
POST /reports: 202 the report will be made (replayed: true)
worker: adopts the request
worker: fails
worker: claims the request, because the ticket is used
worker: makes the report
POST /reports: 201 the report of October (replayed: true)
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
