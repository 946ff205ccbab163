package browsertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The page works below a prefix, beside another handler.
func TestBelowAPrefix(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{})
	s.hold(t, "job-7", "account:42", lockcore.Terms{})
	b.do(chromedp.Navigate(s.url))
	b.shows("account:42", "job-7", "held", "This process")
	b.follow("account:42")
	b.shows("so its process lived then")
	b.follow("Why does it wait?")
	b.shows("Ask")
	if at, err := chromedp.Run(b.ctx, chromedp.Location()); err != nil || at != s.url+"find" {
		t.Errorf("at %s, %v", at, err)
	}
}

// A new hold appears by itself, and goes by itself.
func TestLive(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{})
	b.do(chromedp.Navigate(s.url))
	b.shows("Nothing is held.")
	le := s.hold(t, "job-7", "late", lockcore.Terms{})
	b.shows("late", "live")
	_ = le.Release(t.Context())
	b.shows("Nothing is held.")
}

// No text of a key or task becomes an element.
func TestHostileKey(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	const evil = `<img src=x onerror="document.title='taken'">`
	b.do(chromedp.Navigate(s.url))
	s.hold(t, evil, evil, lockcore.Terms{})
	b.shows(evil) // by the stream
	b.do(chromedp.Reload())
	b.shows(evil)
	b.follow(evil)
	b.shows(evil, "Revoke…")
	b.follow("Pause…")
	b.fill("reason", evil)
	b.follow("Pause")
	b.shows("Pause: done.", evil)
	if n := eval[int](b, "document.images.length"); n != 0 || eval[string](b, "document.title") == "taken" {
		t.Errorf("%d images, title %s", n, eval[string](b, "document.title"))
	}
}

// Revoke needs one confirmation, and reaches the holder.
func TestRevoke(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	le := s.hold(t, "job-7", "account:42", lockcore.Terms{})
	b.do(chromedp.Navigate(s.url))
	b.follow("account:42")
	b.follow("Revoke…")
	b.shows("Revoking asks the handler to stop")
	if err := le.Context().Err(); err != nil {
		t.Fatalf("revoked before the confirmation: %v", err)
	}
	b.follow("Revoke")
	b.shows("Revoke: done.")
	<-le.Context().Done()
	if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("the cause is %v", err)
	}
	b.do(chromedp.Navigate(s.url + "stuck"))
	b.shows("revoked, and its handler has not returned")
}

// From the click to the handler's cause: the log has the median of 20.
func TestRevokeTime(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	s.hold(t, "first", "kept", lockcore.Terms{})
	var held []*lockcore.Lease
	for i := range 20 {
		held = append(held, s.hold(t, "job", fmt.Sprint("account:", i), lockcore.Terms{}))
	}
	time.Sleep(1200 * time.Millisecond) // a revocation cancels no lease that is younger than a second
	var took []time.Duration
	for _, le := range held {
		b.do(chromedp.Navigate(s.url+"revoke?kind=exclusive&key="+le.Key()), chromedp.WaitVisible(chromedp.CSS("#confirm")))
		clicked, ended := time.Now(), make(chan time.Time, 1)
		go func() { <-le.Context().Done(); ended <- time.Now() }() // ends with the hold
		eval[any](b, `(document.getElementById("confirm").click(), null)`)
		took = append(took, (<-ended).Sub(clicked))
		if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrRevoked) {
			t.Errorf("the cause is %v", err)
		}
		b.shows("Revoke: done.")
	}
	slices.Sort(took)
	t.Logf("from the click to the handler's cause: median %v, of %d", took[len(took)/2], len(took))
}

// The form of another site is refused, and the key stays as it is.
func TestOtherSite(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	le := s.hold(t, "job-7", "account:42", lockcore.Terms{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<title>evil</title><form id=f method=post action="%srevoke"><input name=kind value=exclusive><input name=key value=account:42><input name=seen value=%d></form><button onclick="f.submit()">win</button>`, s.url, le.Token())
	}))
	defer other.Close()
	b.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	b.follow("win")
	b.shows("cross-origin request")
	if err := le.Context().Err(); err != nil {
		t.Error(context.Cause(le.Context()))
	}
}

// Without Allow the page has no buttons, and the server refuses an action nevertheless.
func TestReadOnly(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{})
	le := s.hold(t, "job-7", "account:42", lockcore.Terms{})
	b.do(chromedp.Navigate(s.url + "key?kind=exclusive&key=account:42"))
	b.shows("so its process lived then")
	if n := eval[int](b, `document.querySelectorAll("form, button, .acts a").length`); n != 0 {
		t.Errorf("%d forms and buttons", n)
	}
	status := eval[int](b, `(() => { const x = new XMLHttpRequest(); x.open("POST", "revoke", false); x.setRequestHeader("Content-Type", "application/x-www-form-urlencoded"); x.send("kind=exclusive&key=account:42&seen=%d"); return x.status })()`, le.Token())
	if status != http.StatusNotFound || le.Context().Err() != nil {
		t.Errorf("status %d, %v", status, le.Context().Err())
	}
}

// Without JavaScript the list and all actions work.
func TestWithoutJavaScript(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	le := s.hold(t, "job-7", "account:42", lockcore.Terms{})
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	step := func(at chromedp.CSS, wait chromedp.CSS) {
		t.Helper()
		b.do(chromedp.Click(at), chromedp.WaitVisible(wait))
	}
	b.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS(`#rows a`)))
	step(`#rows a`, `.acts a[href^="revoke"]`)
	step(`.acts a[href^="revoke"]`, `#confirm`)
	step(`#confirm`, `.done`)
	<-le.Context().Done()
	if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("the cause is %v", err)
	}
	resp, err := http.Get(s.url) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), `<noscript><meta http-equiv="refresh" content="5"></noscript>`) {
		t.Errorf("the list is not updated: %s", text)
	}
}

// Text has a contrast of at least 4.5 in both color schemes.
func TestDark(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	s.hold(t, "job-7", "account:42", lockcore.Terms{})
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		for _, at := range []string{"", "key?kind=exclusive&key=account:42&done=pause", "pause?kind=exclusive&key=account:42", "key?kind=none", "find?q=account:42"} {
			b.do(chromedp.Navigate(s.url + at))
			worst := eval[struct {
				Contrast float64 `json:"contrast"`
				Text     string  `json:"text"`
				Dark     bool    `json:"dark"`
			}](b, `(() => {
				const c = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
				const rgb = (color) => { c.clearRect(0, 0, 1, 1); c.fillStyle = color; c.fillRect(0, 0, 1, 1); return c.getImageData(0, 0, 1, 1).data };
				const light = (color) => { const [r, g, b] = [...rgb(color)].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
				const probe = document.body.appendChild(document.createElement("span"));
				probe.style.color = "Canvas";
				const canvas = getComputedStyle(probe).color;
				probe.remove();
				let worst = {contrast: 99, text: "", dark: light(canvas) < .2};
				const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
				for (let n; n = walk.nextNode();) {
					if (!n.data.trim() || !n.parentElement.checkVisibility() || n.parentElement.closest("button, select, option, meter")) continue;
					const a = light(getComputedStyle(n.parentElement).color), z = light(canvas), contrast = (Math.max(a, z) + .05) / (Math.min(a, z) + .05);
					if (contrast < worst.contrast) worst = {...worst, contrast, text: n.data.trim()};
				}
				return worst;
			})()`)
			if worst.Contrast < 4.5 || worst.Dark != dark {
				t.Errorf("dark %t, %q: %+v", dark, at, worst)
			}
		}
	}
}

// A revocation by keyboard alone. A line with the focus is not replaced while the list is updated.
func TestKeyboard(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	le := s.hold(t, "job-7", "account:42", lockcore.Terms{})
	b.do(chromedp.Navigate(s.url))
	b.shows("live")
	tab := func(text string) {
		t.Helper()
		for range 30 {
			b.do(chromedp.KeyEvent("\t"))
			if eval[string](b, `document.activeElement.textContent.trim()`) == text {
				return
			}
		}
		t.Fatalf("no way to %q by the keyboard", text)
	}
	tab("account:42")
	eval[any](b, `(document.activeElement.dataset.mine = "yes", null)`)
	s.hold(t, "job-8", "account:43", lockcore.Terms{})
	b.shows("Held 2") // the list has been updated
	if !eval[bool](b, `document.activeElement.dataset.mine === "yes"`) {
		t.Fatal("the line with the focus was replaced")
	}
	b.shows("the list waits while you use it")
	enter := func(next string) {
		t.Helper()
		b.do(chromedp.KeyEvent("\r"))
		b.shows(next)
	}
	enter("so its process lived then")
	tab("Revoke…")
	enter("Revoking asks the handler to stop")
	tab("Revoke")
	enter("Revoke: done.")
	<-le.Context().Done()
}

// What a screen reader needs: a language, titles, headings, labels, captions and scopes.
func TestAccessible(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone, HTTPKey: func(_, _, _, key string) (string, error) { return key, nil }})
	s.hold(t, "job-7", "account:42", lockcore.Terms{})
	titles := map[string]bool{}
	for _, at := range []string{"", "stuck", "find?q=account:42", "key?kind=exclusive&key=account:42", "revoke?kind=exclusive&key=account:42", "limit?kind=exclusive&key=account:42"} {
		b.do(chromedp.Navigate(s.url + at))
		problems := eval[[]string](b, `(() => {
			const bad = [], all = (s) => [...document.querySelectorAll(s)];
			if (!document.documentElement.lang) bad.push("no lang");
			if (!document.title) bad.push("no title");
			if (all("h1").length !== 1) bad.push(all("h1").length + " h1");
			if (all("main").length !== 1 || all("nav[aria-label]").length !== 1) bad.push("landmarks");
			all("table").forEach(t => t.querySelectorAll("thead th").forEach(h => h.scope === "col" || bad.push("no scope: " + h.textContent)));
			all("tbody tr").forEach(r => r.querySelector("td[colspan]") || r.querySelector("th[scope=row]") || bad.push("a row without a header"));
			all("main > table").forEach(t => t.caption || bad.push("no caption"));
			all("input:not([type=hidden]), select").forEach(i => i.labels.length || bad.push("no label: " + i.name));
			all("a, button").forEach(a => a.textContent.trim() || bad.push("an empty link"));
			const ids = all("[id]").map(e => e.id);
			if (new Set(ids).size !== ids.length) bad.push("an id twice");
			if (!document.querySelector("[role=status]")) bad.push("no status");
			return bad;
		})()`)
		if len(problems) > 0 {
			t.Errorf("%s: %v", at, problems)
		}
		titles[eval[string](b, "document.title")] = true
	}
	if len(titles) != 6 {
		t.Errorf("titles %v", titles)
	}
}

// An operator stops a key, slows it, and ends both.
func TestPauseAndLimit(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	b.do(chromedp.Navigate(s.url + "key?kind=exclusive&key=partner:acme"))
	b.follow("Pause…")
	eval[any](b, `(document.getElementById("confirm").click(), null)`)
	if !eval[bool](b, `document.querySelector("[name=reason]").validity.valueMissing && !!document.getElementById("confirm")`) {
		t.Error("a form without a reason is sent")
	}
	b.fill("for", "7m")
	b.fill("reason", "acme is down")
	b.follow("Pause")
	b.shows("Pause: done.", "is paused", "acme is down")
	b.do(chromedp.Navigate(s.url))
	b.shows("partner:acme", "paused")
	b.follow("partner:acme")
	b.follow("End the pause…")
	b.shows("acme is down")
	b.follow("End the pause")
	b.shows("End the pause: done.")
	b.follow("Limit…")
	b.fill("n", "2")
	b.fill("rate", "often")
	b.fill("reason", "acme is slow")
	b.follow("Limit")
	b.shows(`rate is "often"`)
	b.fill("rate", "5/1s")
	b.follow("Limit")
	b.shows("Limit: done.", "restricted to 2 at a time and 5/1s")
	if h, err := s.locks.Inspect(t.Context(), event.KindExclusive, "partner:acme"); err != nil || h.Restriction.Limit != 2 || h.Restriction.Rate.N != 5 || h.PauseLeft != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	b.follow("End the limit…")
	b.follow("End the limit")
	b.shows("End the limit: done.")
}

// The search explains a task, a key and an HTTP request.
func TestWhy(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{
		Tasks: func(_ context.Context, id string) ([]inspect.Task, error) {
			if id != "job-8" {
				return nil, nil
			}
			return []inspect.Task{{ID: id, Queue: "default", Type: "charge", State: "retry", Next: time.Now().Add(time.Minute), LastErr: `lockcore: "account:42" is busy: held for 2s by pod-3/17`}}, nil
		},
		HTTPKey: func(scope, method, path, key string) (string, error) {
			return strings.Join([]string{scope, method, path, key}, " "), nil
		},
	})
	s.hold(t, "job-7", "account:42", lockcore.Terms{})
	charge, _, err := s.locks.Claim(t.Context(), "alice POST /charges 8e03", lockcore.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	defer charge.Release(t.Context()) //nolint:errcheck // the test has ended
	b.do(chromedp.Navigate(s.url))
	b.follow("Why does it wait?")
	ask := func(want ...string) {
		t.Helper()
		b.follow("Ask")
		b.shows(want...)
	}
	b.fill("q", "job-8")
	ask("Task job-8 of queue default failed or found its key busy", "account:42 is held by", "job-7", "so its process lived then")
	b.fill("q", "account:42")
	ask("account:42 is held by")
	b.fill("q", "account:44")
	ask("Nothing is known of account:44")
	b.do(chromedp.Navigate(s.url + "find?" + url.Values{"scope": {"alice"}, "method": {"POST"}, "path": {"/charges"}, "idempotency-key": {"8e03"}}.Encode()))
	b.shows("alice POST /charges 8e03 is held by")
}

// On a phone nothing is wider than the screen, and each value has its name.
func TestPhone(t *testing.T) {
	b, s := open(t), serve(t, inspect.Options{Allow: everyone})
	s.hold(t, strings.Repeat("a-long-task-", 6), "account:"+strings.Repeat("4", 80), lockcore.Terms{})
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, at := range []string{"", "stuck", "find?q=account:42", "key?kind=exclusive&key=account:" + strings.Repeat("4", 80), "limit?kind=exclusive&key=account:42"} {
		b.do(chromedp.Navigate(s.url + at))
		if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 360 {
			t.Errorf("%s is %d wide", at, wide)
		}
	}
	b.do(chromedp.Navigate(s.url))
	b.shows("account:444")
	if label := eval[string](b, `getComputedStyle(document.querySelector("#rows td[data-label=for]"), "::before").content`); !strings.Contains(label, "for") {
		t.Errorf("the label is %s", label)
	}
}
