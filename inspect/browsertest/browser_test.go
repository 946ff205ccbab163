package browsertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

const patience = time.Minute // for what happens at once, on a machine that is busy

// browser is a tab of Chromium.
type browser struct {
	*testing.T
	ctx context.Context //nolint:containedctx // of chromedp: the tab
}

// open starts Chromium. Without one the test is skipped, and fails if CI is set.
func open(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	switch {
	case path != "":
	case os.Getenv("CI") != "":
		t.Fatal("no Chromium")
	default:
		t.Skip("no Chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &browser{t, ctx}
	b.do(chromedp.EmulateViewport(1200, 800))
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for i, step := range steps {
		if err := chromedp.Do(b.ctx, step); err != nil {
			b.Fatalf("step %d: %v\n%s", i+1, err, b.text())
		}
	}
}

// text returns what the page shows.
func (b *browser) text() string {
	text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return text
}

// eval evaluates an expression.
func eval[T any](b *browser, expression string, args ...any) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, args...)))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shows waits until the page has all texts.
func (b *browser) shows(texts ...string) {
	b.Helper()
	for _, want := range texts {
		if !b.within(func() bool { return strings.Contains(b.text(), want) }) {
			b.Fatalf("no %q in:\n%s", want, b.text())
		}
	}
}

// within reports whether f is true in time.
func (b *browser) within(f func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}

// follow clicks the link or button with a text.
func (b *browser) follow(text string) {
	b.Helper()
	const find = `[...document.querySelectorAll("a, button")].find(e => e.textContent.trim() === %q)`
	if !b.within(func() bool { return eval[bool](b, "!!"+find, text) }) {
		b.Fatalf("no link %q in:\n%s", text, b.text())
	}
	eval[any](b, `(document.title = "left", `+find+`.click(), null)`, text)
	if !b.within(func() bool {
		title, err := chromedp.Run(b.ctx, chromedp.Title())
		return err == nil && title != "left"
	}) {
		b.Fatalf("%q leads nowhere", text)
	}
}

// fill types a text into the input with a name.
func (b *browser) fill(name, text string) {
	b.Helper()
	b.do(chromedp.SetValue(chromedp.CSS(fmt.Sprintf("input[name=%q]", name)), text))
}

// dark chooses a color scheme.
func (b *browser) dark(on bool) {
	b.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}); err != nil {
		b.Fatal(err)
	}
}

// site is a page below a prefix, beside another handler.
type site struct {
	url   string
	locks *lockcore.Locker
	redis *locktest.Server
}

func serve(t *testing.T, o inspect.Options) *site {
	t.Helper()
	s := &site{redis: locktest.NewServer(t)}
	s.locks = s.redis.Locker(lockcore.Options{})
	mux := http.NewServeMux()
	mux.Handle("/ops/holdfast/", http.StripPrefix("/ops/holdfast", inspect.New(s.locks, o)))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "another page") })
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections() // streams
		srv.Close()
	})
	s.url = srv.URL + "/ops/holdfast/"
	return s
}

func everyone(*http.Request) error { return nil }

// hold holds a key as a task until the test ends.
func (s *site) hold(t *testing.T, task, key string, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	le, err := s.locks.Acquire(lockcore.WithTask(t.Context(), task), key, terms)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = le.Release(context.Background()) })
	return le
}
