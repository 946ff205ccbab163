package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stagetest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// installed returns the path of a program of Prometheus. Without the program the test is skipped, or
// fails if CI=true.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is required where CI=true: apt-get install prometheus", name)
		}
		t.Skipf("SKIPPED: no %s; apt-get install prometheus", name)
	}
	return path
}

func absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// config writes a configuration that scrapes addr with the alerts of docs/observability, and
// returns its path.
func config(t *testing.T, addr string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: example, static_configs: [{targets: [%q]}]}]\n", absolute(t, docs+"alerts.yaml"), addr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// promtool accepts the rules and the configurations, and each alert fires in its scene and is
// silent in the healthy one.
func TestPromtool(t *testing.T) {
	promtool := installed(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", absolute(t, docs+"alerts.yaml")},
		{"check", "config", config(t, "127.0.0.1:1")},
		{"test", "rules", absolute(t, docs+"alerts_test.yaml")},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("promtool %s: %s", strings.Join(args[:2], " "), strings.Join(strings.Fields(string(out)), " "))
	}
	tests := read(t, docs+"alerts_test.yaml")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(read(t, docs+"alerts.yaml"), -1)
	for _, a := range alerts {
		if !strings.Contains(tests, `labels: '{alertname="`+a[1]+`"`) {
			t.Errorf("no test of alerts_test.yaml expects %s to fire", a[1])
		}
	}
	t.Logf("%d alerts fire in alerts_test.yaml", len(alerts))
}

// stanza is an expression and its source.
type stanza struct{ where, expr string }

// queries returns the queries of the dashboard, with its variables filled in as Grafana does, and
// of the alerts.
func queries(t *testing.T) (board, alerts []stanza) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, docs+"dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "10m", "$job", "example", "$name", ".*")
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			board = append(board, stanza{p.Title, variables.Replace(q.Expr)})
		}
	}
	for _, part := range strings.Split(read(t, docs+"alerts.yaml"), "      - alert: ")[1:] {
		name, _, _ := strings.Cut(part, "\n")
		expr := regexp.MustCompile(`(?s) expr: \|?(.*?)\n +for:`).FindStringSubmatch(part)
		if expr == nil {
			t.Fatalf("no expr in %s", name)
		}
		alerts = append(alerts, stanza{name, expr[1]})
	}
	return board, alerts
}

// A real Prometheus scrapes the program, which runs on a real Redis that is stopped for a while. No
// query of the dashboard or of the alerts has an empty answer, and no panel for events shows only
// zeros.
func TestPrometheus(t *testing.T) {
	testlevel.Full(t)
	binary := installed(t, "prometheus")
	server := redistest.Real(t)
	demo := start(t, "-redis", server.Addr(), "-pause", "100ms")
	api := scraper(t, binary, strings.TrimPrefix(demo.url, "http://"))

	demo.tour(t) // each fault once
	server.Pause()
	time.Sleep(4 * time.Second) // beyond two renewals of a lease of 6 s
	server.Resume()

	board, alerts := queries(t)
	open := slices.DeleteFunc(slices.Concat(board, alerts), func(s stanza) bool {
		return strings.Contains(s.expr, ofMajority)
	})
	count, last := len(open), ""
	for end := time.Now().Add(2 * time.Minute); len(open) > 0 && time.Now().Before(end) && t.Context().Err() == nil; {
		open = slices.DeleteFunc(open, func(s stanza) bool {
			seen, err := api.query(t, s.expr)
			if err != nil {
				last = err.Error()
			}
			return seen
		})
		time.Sleep(500 * time.Millisecond)
	}
	for _, s := range open {
		t.Errorf("%s is empty, or 0 throughout (%s):\n%s", s.where, last, s.expr)
	}
	t.Logf("%d queries of the dashboard, %d of the alerts, %d empty of %d", len(board), len(alerts), len(open), count)
	demo.stop()
}

// endpoint is the address of a Prometheus.
type endpoint string

// scraper starts a Prometheus that scrapes target. It ends with the test.
func scraper(t *testing.T, binary, target string) endpoint {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil { // frees the port for Prometheus
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "--config.file="+config(t, target), "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address="+addr, "--log.level=error")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", log.String())
		}
	})
	for range 300 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/-/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return endpoint("http://" + addr)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("prometheus does not get ready within 30 s")
	return ""
}

// query reports whether expr has a sample that is a number other than 0 now.
func (e endpoint) query(t *testing.T, expr string) (seen bool, err error) {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value []any }
		}
	}
	body := get(t, string(e)+"/api/v1/query?query="+url.QueryEscape(expr))
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return false, err
	}
	if answer.Status != "success" {
		return false, errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		if len(r.Value) == 2 && r.Value[1] != "0" && r.Value[1] != "NaN" {
			return true, nil
		}
	}
	return false, nil
}

// running is the program.
type running struct {
	url   string
	stop  func()
	tours chan struct{} // closed after the first
}

// start runs the program on a free port, until stop.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	out, stop := stagetest.Start(t, program(), append(args, "-addr", "127.0.0.1:0")...)
	r := &running{tours: make(chan struct{}), stop: func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
	}}
	found, once := make(chan string, 1), sync.OnceFunc(func() { close(r.tours) })
	go func() { // ends when the program does
		defer close(found)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if after, ok := strings.CutPrefix(lines.Text(), "metrics    "); ok {
				found <- strings.TrimSuffix(after, "/metrics")
			}
			select {
			case <-r.tours:
			default:
				if strings.Contains(lines.Text(), "unexpected result") {
					t.Error(lines.Text())
				}
			}
			if strings.Contains(lines.Text(), "all faults were made") {
				once()
			}
		}
	}()
	if r.url = <-found; r.url == "" {
		stop()
		t.Fatal("the program ended")
	}
	return r
}

// tour waits until each fault was made once.
func (r *running) tour(t *testing.T) {
	t.Helper()
	select {
	case <-r.tours:
	case <-time.After(2 * time.Minute):
		t.Fatal("the program did not cause each fault within 2 min")
	}
}
