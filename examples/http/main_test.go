package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.PoolProbes()) }

// The requests that the program prints have the printed results, on a Redis inside the process and
// on a real one. The program ends with its ctx.
func TestRun(t *testing.T) {
	testlevel.Full(t)
	t.Setenv("REDIS_ADDR", "")
	t.Run("memory", func(t *testing.T) { tour(t) })
	t.Run("real", func(t *testing.T) { tour(t, "-redis", redistest.Real(t).Addr()) })
}

func tour(t *testing.T, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() { // ends when ctx does
		err := run(ctx, append([]string{"-addr", "127.0.0.1:0", "-work", "250ms"}, args...), stdout)
		_ = stdout.CloseWithError(err)
		ended <- err
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	var orders []string
	var spans string
	for _, c := range invited(t, out) {
		if one, _, two := strings.Cut(c.line, " & "); two {
			orders = append(orders, twice(t, client, one))
			continue
		}
		status, header, body := paste(t, client, c.line)
		if want := regexp.MustCompile(`: (\d+)`).FindStringSubmatch(c.why); want == nil || !strings.HasPrefix(status, want[1]) {
			t.Errorf("%s: got %s %q", c.why, status, body)
		}
		if strings.Contains(c.why, "Replayed") != (header.Get("Idempotent-Replayed") == "true") {
			t.Errorf("%s: got %v", c.why, header)
		}
		if strings.HasPrefix(status, "201") {
			orders = append(orders, body)
			if location := header.Get("Location"); !strings.Contains(body, strings.TrimPrefix(location, "/orders/")) || location == "" {
				t.Errorf("%s: %q is at %q", c.why, body, location)
			}
		}
		if strings.HasSuffix(c.line, "/debug/spans") {
			spans = body
		}
	}
	if len(orders) != 4 || orders[0] != orders[1] || orders[0] == orders[2] {
		t.Errorf("orders are %q", orders)
	}
	for _, word := range []string{"once http", "create order", "outcome=completed", "outcome=replayed", "outcome=mismatch"} {
		if !strings.Contains(spans, word) {
			t.Errorf("no %q in\n%s", word, spans)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

type call struct{ why, line string }

// invited reads the printed requests and their descriptions.
func invited(t *testing.T, out io.Reader) []call {
	t.Helper()
	var calls []call
	why := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			why = said
		}
		if strings.HasPrefix(lines.Text(), "curl ") {
			calls = append(calls, call{why, lines.Text()})
		}
		if strings.HasSuffix(lines.Text(), "& wait") {
			return calls
		}
	}
	t.Fatalf("the program ended after %d lines to paste", len(calls))
	return nil
}

// twice sends a request two times at once and returns the order that both got.
func twice(t *testing.T, client *http.Client, line string) string {
	t.Helper()
	var wg sync.WaitGroup
	var body [2]string
	for i := range body {
		wg.Go(func() { _, _, body[i] = paste(t, client, line) })
	}
	wg.Wait()
	if body[0] != body[1] {
		t.Errorf("two at once got %q", body)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(line)
	_, _, spans := paste(t, client, "curl -i "+strings.TrimSuffix(url, "/orders")+"/debug/spans")
	if !strings.Contains(spans, "waited for span") {
		t.Errorf("no request waited in\n%s", spans)
	}
	return body[0]
}

// paste sends the request of a curl command.
func paste(t *testing.T, client *http.Client, line string) (status string, header http.Header, body string) {
	t.Helper()
	method, data := http.MethodGet, ""
	if m := regexp.MustCompile(` -d '([^']*)'`).FindStringSubmatch(line); m != nil {
		method, data = http.MethodPost, m[1]
	}
	r, err := http.NewRequestWithContext(t.Context(), method, regexp.MustCompile(`http://\S+`).FindString(line), strings.NewReader(data))
	if err != nil {
		t.Error(err)
		return "", nil, ""
	}
	for _, h := range regexp.MustCompile(` -H '([^:']*): ([^']*)'`).FindAllStringSubmatch(line, -1) {
		r.Header.Set(h[1], h[2])
	}
	res, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return "", nil, ""
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.Status, res.Header, string(b)
}

// A run that cannot work returns an error at once.
func TestRunErrors(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such flag": {[]string{"-rediss", "x"}, "-rediss"},
		"argument":     {[]string{"x"}, `"x"`},
		"no redis":     {[]string{"-redis", "127.0.0.1:1"}, "127.0.0.1:1"},
		"no address":   {[]string{"-addr", "127.0.0.1:99999"}, "99999"},
	} {
		if err := run(t.Context(), c.args, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := run(t.Context(), []string{"-help"}, new(bytes.Buffer)); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
