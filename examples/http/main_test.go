package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestMain(m *testing.M) { stagetest.Main(m) }

// The requests that the program prints have the printed results, on a Redis inside the process and
// on a real one.
func TestRun(t *testing.T) {
	testlevel.Full(t)
	stagetest.OnEach(t, tour)
}

func tour(t *testing.T, args ...string) {
	t.Helper()
	out, stop := stagetest.Start(t, program(), append([]string{"-addr", "127.0.0.1:0", "-work", "250ms"}, args...)...)
	defer stop()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	var orders []string
	for _, c := range invited(t, out) {
		if strings.HasPrefix(c.line, "http") {
			if a := paste(t, client, c.line); !strings.Contains(a.body, "done (ok)") {
				t.Errorf("%s: %s %s", c.line, a.status, a.body)
			}
			continue
		}
		if one, _, two := strings.Cut(c.line, " & "); two {
			orders = append(orders, twice(t, client, one))
			continue
		}
		a := paste(t, client, c.line)
		if want := regexp.MustCompile(`: (\d+)`).FindStringSubmatch(c.why); want == nil || !strings.HasPrefix(a.status, want[1]) {
			t.Errorf("%s: got %s %q", c.why, a.status, a.body)
		}
		if strings.Contains(c.why, "Replayed") != a.replayed {
			t.Errorf("%s: replayed: %v", c.why, a.replayed)
		}
		if strings.HasPrefix(a.status, "201") {
			orders = append(orders, a.body)
			if !strings.Contains(a.body, strings.TrimPrefix(a.location, "/orders/")) || a.location == "" {
				t.Errorf("%s: %q is at %q", c.why, a.body, a.location)
			}
		}
	}
	if len(orders) != 4 || orders[0] != orders[1] || orders[0] == orders[2] {
		t.Errorf("orders are %q", orders)
	}
}

type call struct{ why, line string }

// invited reads the printed requests and their descriptions.
func invited(t *testing.T, out io.Reader) (calls []call) {
	t.Helper()
	why := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			why = said
		}
		if strings.HasPrefix(lines.Text(), "curl ") || strings.HasPrefix(lines.Text(), "http") {
			calls = append(calls, call{why, lines.Text()})
		}
		if strings.HasSuffix(lines.Text(), "& wait") {
			return calls
		}
	}
	t.Fatalf("the program ended after %d lines to paste", len(calls))
	return nil
}

// twice sends a request two times at once and returns the order that both got: the first from its
// run, the second as a replay.
func twice(t *testing.T, client *http.Client, line string) string {
	t.Helper()
	var all sync.WaitGroup
	var a [2]answer
	for i := range a {
		all.Go(func() { a[i] = paste(t, client, line) })
	}
	all.Wait()
	if a[0].body != a[1].body || a[0].replayed == a[1].replayed {
		t.Errorf("two at once got %+v", a)
	}
	return a[0].body
}

type answer struct {
	status, location, body string
	replayed               bool
}

// paste sends the request of a curl command, or that of a link.
func paste(t *testing.T, client *http.Client, line string) answer {
	t.Helper()
	_, data, post := strings.Cut(line, " -d ")
	method := http.MethodGet
	if post {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, regexp.MustCompile(`http://\S+`).FindString(line), strings.NewReader(strings.Trim(data, "'")))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	for _, h := range regexp.MustCompile(` -H '([^:']*): ([^']*)'`).FindAllStringSubmatch(line, -1) {
		r.Header.Set(h[1], h[2])
	}
	res, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{res.Status, res.Header.Get("Location"), string(b), res.Header.Get(httpmw.HeaderReplayed) == "true"}
}

// While an order is under way, the page shows its key.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := shop{work: time.Minute}.routes(locktest.New(t))
		send := func(method, target, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer alice-token")
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			shop.ServeHTTP(w, r)
			return w
		}
		var ordered *httptest.ResponseRecorder
		var order sync.WaitGroup
		order.Go(func() { ordered = send(http.MethodPost, "/orders", `{"item":"tea","quantity":2}`) })
		synctest.Wait()
		key, err := httpmw.IdempotentOptions{}.KeyOf("alice", http.MethodPost, "/orders", "k")
		if err != nil {
			t.Fatal(err)
		}
		if text := send(http.MethodGet, "/locks/", "").Body.String(); !strings.Contains(text, key) {
			t.Errorf("no %q in %s", key, text)
		}
		const find = "/locks/find?scope=alice&method=POST&path=/orders&idempotency-key=k"
		if text := send(http.MethodGet, find, "").Body.String(); !strings.Contains(text, "is held by") {
			t.Error(text)
		}
		order.Wait()
		if text := send(http.MethodGet, find, "").Body.String(); ordered.Code != http.StatusCreated || !strings.Contains(text, "done (ok)") {
			t.Errorf("%d %s", ordered.Code, text)
		}
	})
}

func TestBadAddress(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	stagetest.WantError(t, program(), "99999", "-addr", "127.0.0.1:99999")
}
