package main

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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
			t, program(), args,
			"context deadline exceeded", "no retry is used up", "replayed, not run", "worker A", "worker B", "receipt 1001", `account 42 \(hot\)`,
			`\nasynq alone .* archived\nwith holdfast .* completed\ntwo workers, one account .* completed\n`+
				`one hot account .* completed\none payment, sent twice .* completed\n$`,
		)
	})
}

// The page shows a key that a chapter holds, and stays until the program is interrupted.
func TestServe(t *testing.T) {
	testlevel.Full(t)
	t.Setenv("REDIS_ADDR", "")
	out, stop := stagetest.Start(t, program(), "-serve", "127.0.0.1:0")
	defer stop()
	lines := bufio.NewScanner(out)
	url := linkIn(t, lines, "who holds which key: ")
	held := make(chan error, 1)
	go func() { // ends with the first key, or with the program
		for {
			body, err := get(t, url+"api/held")
			if err != nil || strings.Contains(body, `"state": "held"`) && strings.Contains(body, "account:42") {
				held <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	report := linkIn(t, lines, "until Ctrl-C: ")
	select {
	case err := <-held:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the page has shown no key that was held")
	}
	for _, c := range []struct{ url, want string }{{report, "Task report-1 of queue"}, {url, "last walk over all keys"}, {url + "pause?kind=exclusive&key=k", "Pause"}} {
		if body, err := get(t, c.url); err != nil || !strings.Contains(body, c.want) {
			t.Errorf("%s: %v, no %q in %s", c.url, err, c.want, body)
		}
	}
}

// linkIn returns the link that the program prints after a text.
func linkIn(t *testing.T, lines *bufio.Scanner, after string) string {
	t.Helper()
	for lines.Scan() {
		if _, link, found := strings.Cut(lines.Text(), after); found {
			return link
		}
	}
	t.Fatalf("the program ended without %q: %v", after, lines.Err())
	return ""
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
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
		t, program(), []string{"-redis", strings.Join(addrs, ",")},
		`wait for 5s, the lease`, "asynq on Redis at "+addrs[0]+", with the locks on a majority of "+addrs[0],
		"worker A has no connection to "+addrs[2], addrs[2]+" does not reply: the others are a majority",
		`\nasynq alone .* archived\nwith holdfast: one run at a time +[34] +1 +archived\ntwo workers, one account +4 +1 +completed\nthe same, and one server does not reply +4 +1 +completed\n$`,
	)
	stagetest.WantError(t, program(), "there are 2 masters, must be 3, 5 or 7", "-redis", addrs[0]+","+addrs[1])
	for i, rdb := range clients {
		if keys, err := rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("keys left on %s: %q, %v", addrs[i], keys, err)
		}
	}
}
