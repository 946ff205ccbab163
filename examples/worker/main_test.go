package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/redistest"
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

// On a majority of servers, which have just started, the chapters show what runs alone, also without
// one of them. No keys are left.
func TestQuorum(t *testing.T) {
	testlevel.Full(t)
	var addrs []string
	var clients []*redis.Client
	for range 3 {
		server := redistest.Real(t)
		addrs, clients = append(addrs, server.Addr()), append(clients, server.Client(t))
	}
	stagetest.Output(
		t, program, []string{"-redis", strings.Join(addrs, ",")},
		`wait for 5s, the lease`, "asynq on Redis at "+addrs[0]+", with the locks on a majority of "+addrs[0],
		"worker A has no connection to "+addrs[2], addrs[2]+" does not reply: the others are a majority",
		`\nasynq alone .* archived\nwith holdfast: one run at a time +[34] +1 +archived\ntwo workers, one account +4 +1 +completed\nthe same, and one server does not reply +4 +1 +completed\n$`,
	)
	stagetest.WantError(t, program, "there are 2 masters, must be 3, 5 or 7", "-redis", addrs[0]+","+addrs[1])
	for i, rdb := range clients {
		if keys, err := rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("keys left on %s: %q, %v", addrs[i], keys, err)
		}
	}
}
