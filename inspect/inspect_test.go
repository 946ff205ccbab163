package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// page is a handler that a test asks.
type page struct {
	*testing.T
	locks *lockcore.Locker
	h     http.Handler
	acts  []inspect.Action
}

// open returns a page on a Locker in memory. Everyone may act if act is true.
func open(t *testing.T, act bool, o inspect.Options) *page {
	t.Helper()
	p := &page{T: t, locks: locktest.New(t)}
	if act {
		o.Allow = func(*http.Request) error { return nil }
	}
	o.Audit = func(_ context.Context, a inspect.Action) { p.acts = append(p.acts, a) }
	p.h = inspect.New(p.locks, o)
	return p
}

func (p *page) do(r *http.Request) *httptest.ResponseRecorder {
	p.Helper()
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w
}

// get returns the body of a page that has this status.
func (p *page) get(status int, target string) string {
	p.Helper()
	w := p.do(httptest.NewRequestWithContext(p.Context(), http.MethodGet, target, http.NoBody))
	if w.Code != status {
		p.Fatalf("GET %s: status %d, want %d: %s", target, w.Code, status, w.Body)
	}
	return w.Body.String()
}

var input = regexp.MustCompile(`<input type="(?:hidden|text)" name="([^"]*)" value="([^"]*)"`)

// act opens the confirmation of a verb, fills in the form and sends it.
func (p *page) act(status int, verb, query string, fields ...string) *httptest.ResponseRecorder {
	p.Helper()
	return p.send(status, verb, p.form(verb, query), fields...)
}

// form returns the inputs of a confirmation, and the query of its address.
func (p *page) form(verb, query string) url.Values {
	p.Helper()
	text := p.get(http.StatusOK, "/"+verb+"?"+query)
	_, action, _ := strings.Cut(text, `method="post" action="`+verb+"?")
	action, _, _ = strings.Cut(action, `"`)
	form, err := url.ParseQuery(unescape(action))
	if err != nil || len(form) == 0 {
		p.Fatalf("%v: %q in %s", err, action, text)
	}
	for _, m := range input.FindAllStringSubmatch(text, -1) {
		form.Set(m[1], newlines(unescape(m[2])))
	}
	return form
}

var unescape = strings.NewReplacer("&#34;", `"`, "&lt;", "<", "&gt;", ">", "&amp;", "&", "&#39;", "'", "&#43;", "+").Replace

// newlines is what a browser does to an input.
var newlines = strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n", "\x00", "\ufffd", "\xff", "\ufffd").Replace

func (p *page) send(status int, verb string, form url.Values, fields ...string) *httptest.ResponseRecorder {
	p.Helper()
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	query, body := url.Values{}, url.Values{}
	for name, values := range form {
		if name == "kind" || name == "key" || name == "ref" {
			query[name] = values
		} else {
			body[name] = values
		}
	}
	r := httptest.NewRequestWithContext(p.Context(), http.MethodPost, "/"+verb+"?"+query.Encode(), strings.NewReader(body.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := p.do(r)
	if w.Code != status {
		p.Fatalf("POST %s %v: status %d, want %d: %s", verb, form, w.Code, status, w.Body)
	}
	return w
}

func (p *page) acquire(key string, terms lockcore.Terms) *lockcore.Lease {
	p.Helper()
	le, err := p.locks.Acquire(lockcore.WithTask(p.Context(), "job-7"), key, terms)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = le.Release(context.Background()) })
	return le
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

func lacks(t *testing.T, text string, unwanted ...string) {
	t.Helper()
	for _, part := range unwanted {
		if strings.Contains(text, part) {
			t.Errorf("%q is in:\n%s", part, text)
		}
	}
}

// The first screen shows who holds which key, below any prefix and beside another handler.
func TestHeld(t *testing.T) {
	p := open(t, false, inspect.Options{})
	p.acquire("account:42", lockcore.Terms{})
	mux := http.NewServeMux()
	mux.Handle("/ops/holdfast/", http.StripPrefix("/ops/holdfast", p.h))
	p.h = mux
	text := p.get(http.StatusOK, "/ops/holdfast/")
	contains(t, text, `<a href="key?key=account%3A42&amp;kind=exclusive">account:42</a>`, `job-7`, "This process", `role="status"`, `lang="en"`, `scope="col"`, "<caption")
	lacks(t, text, `href="/`, `src="/`, `action="/`, "http://", "https://")
	contains(t, p.get(http.StatusOK, "/ops/holdfast/?match=account"), "account:42")
	contains(t, p.get(http.StatusOK, "/ops/holdfast/?match=zzz"), "No key contains zzz.")
	text = p.get(http.StatusOK, "/ops/holdfast/key?kind=exclusive&key=account:42")
	contains(t, text, "Its lease was renewed", "<dt>token</dt>")
	contains(t, p.get(http.StatusBadRequest, "/ops/holdfast/key?kind=none&key=k"), "kind must be exclusive or once, not &#34;none&#34;")
}

// Without Allow there is no button and no route that changes anything.
func TestReadOnly(t *testing.T) {
	p := open(t, false, inspect.Options{})
	p.acquire("k", lockcore.Terms{})
	lacks(t, p.get(http.StatusOK, "/key?kind=exclusive&key=k"), "…", "<form class=\"confirm\"")
	for _, verb := range []string{"revoke", "clear", "wake", "pause", "end-pause", "limit", "end-limit"} {
		p.get(http.StatusNotFound, "/"+verb+"?kind=exclusive&key=k")
		p.send(http.StatusNotFound, verb, url.Values{"kind": {"exclusive"}, "key": {"k"}})
	}
	for _, target := range []string{"/", "/stuck", "/find", "/key", "/events", "/api/held", "/api/key"} {
		if w := p.do(httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, http.NoBody)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", target, w.Code)
		}
	}
}

// Each response has the headers that keep other sites and caches out.
func TestHeaders(t *testing.T) {
	p := open(t, true, inspect.Options{})
	for _, target := range []string{"/", "/api/held", "/nothing", "/style.css", "/revoke?kind=exclusive&key=k"} {
		h := p.do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)).Header()
		contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'")
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", target, h)
		}
	}
}

// No request makes the handler read much, whatever its method and form are.
func TestHugeBody(t *testing.T) {
	p := open(t, true, inspect.Options{})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, form := range []string{"multipart/form-data; boundary=b", "application/x-www-form-urlencoded"} {
			body := strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 1<<22))
			r := httptest.NewRequestWithContext(t.Context(), method, "/revoke?kind=exclusive&key=k", body)
			r.Header.Set("Content-Type", form)
			if p.do(r); body.Len() < 1<<21 {
				t.Errorf("%s %s: %d bytes are left", method, form, body.Len())
			}
		}
	}
}

// The form of another site is refused.
func TestCrossOrigin(t *testing.T) {
	p := open(t, true, inspect.Options{})
	le := p.acquire("k", lockcore.Terms{})
	form := p.form("revoke", "kind=exclusive&key=k")
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"} {
		name, value, _ := strings.Cut(header, ": ")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/revoke", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(name, value)
		if w := p.do(r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", header, w.Code, w.Body)
		}
	}
	if err := le.Context().Err(); err != nil || len(p.acts) != 0 {
		t.Errorf("%v %+v", err, p.acts)
	}
}

// No text of a key, task or reason becomes markup.
func TestHostileText(t *testing.T) {
	p := open(t, true, inspect.Options{})
	const evil = `<img src=x onerror=alert(1)>"'&`
	le, err := p.locks.Acquire(lockcore.WithTask(t.Context(), evil), evil, lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	defer le.Release(context.Background()) //nolint:errcheck // it may be revoked
	query := url.Values{"kind": {"exclusive"}, "key": {evil}}.Encode()
	p.act(http.StatusSeeOther, "pause", query, "reason", evil)
	for _, target := range []string{"/", "/?match=" + url.QueryEscape(evil), "/key?" + query, "/revoke?" + query, "/limit?" + query, "/find?q=" + url.QueryEscape(evil)} {
		lacks(t, p.get(http.StatusOK, target), "<img")
	}
	contains(t, p.get(http.StatusOK, "/key?"+query), "&lt;img")
}

// A form acts on the key that it shows, whatever the bytes of the key and of a reason are.
func TestAnyBytes(t *testing.T) {
	p := open(t, true, inspect.Options{})
	for _, key := range []string{"a\nb", "a\rb\r\n", "\xff\x00", "a&b=c;d+e%2f", "../..", strings.Repeat("ü", 256)} {
		query := url.Values{"kind": {"exclusive"}, "key": {key}}.Encode()
		p.act(http.StatusSeeOther, "pause", query, "reason", "line 1\nline 2")
		if h, err := p.locks.Inspect(t.Context(), event.KindExclusive, key); err != nil || h.PauseLeft <= 0 {
			t.Errorf("%q is not paused: %v", key, err)
		}
		p.act(http.StatusSeeOther, "end-pause", query)
	}
}

// A revocation reaches the holder, and only the hold that was shown. Each act is recorded.
// Shows: L5
func TestRevoke(t *testing.T) {
	p := open(t, true, inspect.Options{Actor: func(*http.Request) string { return "ann\n" }})
	const query = "kind=exclusive&key=k"
	p.get(http.StatusConflict, "/revoke?"+query) // free
	le := p.acquire("k", lockcore.Terms{})
	contains(t, p.get(http.StatusOK, "/key?"+query), `<a href="revoke?key=k&amp;kind=exclusive">Revoke…</a>`)
	old := p.form("revoke", query)
	_ = le.Release(t.Context())
	le = p.acquire("k", lockcore.Terms{})
	contains(t, p.send(http.StatusConflict, "revoke", old).Body.String(), "has changed since it was shown")
	w := p.act(http.StatusSeeOther, "revoke", query)
	if at := w.Header().Get("Location"); at != "key?key=k&kind=exclusive&done=revoke" {
		t.Errorf("Location %q", at)
	}
	select {
	case <-le.Context().Done():
	case <-time.After(30 * time.Second):
	}
	if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("the holder's cause is %v", err)
	}
	contains(t, p.get(http.StatusOK, "/stuck"), "revoked, and its handler has not returned")
	if len(p.acts) != 2 || p.acts[0].Err == nil || p.acts[1].Err != nil || p.acts[1].Verb != "revoke" || p.acts[1].Key != "k" || p.acts[1].Actor != `"ann\n"` || p.acts[1].Holder.Task != "job-7" {
		t.Errorf("%+v", p.acts)
	}
}

// Allow decides for each request.
func TestAllow(t *testing.T) {
	p := open(t, false, inspect.Options{Allow: func(r *http.Request) error {
		if r.Header.Get("User") != "ann" {
			return errors.New("ask ann")
		}
		return nil
	}})
	le := p.acquire("k", lockcore.Terms{})
	lacks(t, p.get(http.StatusOK, "/key?kind=exclusive&key=k"), "Revoke")
	contains(t, p.get(http.StatusForbidden, "/revoke?kind=exclusive&key=k"), "ask ann")
	p.send(http.StatusForbidden, "revoke", url.Values{"kind": {"exclusive"}, "key": {"k"}, "seen": {fmt.Sprint(le.Token())}})
	if le.Context().Err() != nil || len(p.acts) != 1 || p.acts[0].Err == nil || p.acts[0].Key != "k" {
		t.Errorf("%v %+v", le.Context().Err(), p.acts)
	}
}

// An abandoned payment is cleared once, and not after it has changed.
// Shows: O5
func TestClear(t *testing.T) {
	p := open(t, true, inspect.Options{})
	abandon := func() {
		le, _, err := p.locks.Claim(t.Context(), "payment:8", lockcore.Claim{})
		if err == nil {
			err = le.Abandon(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	abandon()
	const query = "kind=once&key=payment:8"
	lacks(t, p.get(http.StatusOK, "/stuck"), "payment:8")
	p.get(http.StatusOK, "/stuck?once=yes")
	old := p.form("clear", query)
	abandon()
	p.send(http.StatusConflict, "clear", old)
	contains(t, p.get(http.StatusOK, "/find?q=payment:8"), "outcome is unknown", "holdfast clear -once")
	p.act(http.StatusSeeOther, "clear", query)
	if h, err := p.locks.Inspect(t.Context(), event.KindOnce, "payment:8"); err != nil || h.State != lockcore.StateFree {
		t.Errorf("%v, %v", h.State, err)
	}
}

// A key whose data cannot be read is cleared, and the answer says so.
func TestClearUnreadable(t *testing.T) {
	rdb := redis.NewClient(locktest.NewServer(t).Options())
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	p := &page{T: t, locks: locks, h: inspect.New(locks, inspect.Options{Allow: func(*http.Request) error { return nil }})}
	if err := rdb.HSet(t.Context(), "holdfast:2:o:{k}", "s", "h", "t", "many").Err(); err != nil {
		t.Fatal(err)
	}
	const query = "kind=once&key=k"
	contains(t, p.get(http.StatusConflict, "/key?"+query), "must be a number")
	p.act(http.StatusSeeOther, "clear", query)
	if h, err := locks.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateFree {
		t.Errorf("%v, %v", h.State, err)
	}
}

// Pauses and limits need a reason, and bad input names field, value and bound. It keeps what was typed.
func TestPauseAndLimit(t *testing.T) {
	p := open(t, true, inspect.Options{})
	const query = "kind=exclusive&key=partner:acme"
	contains(t, p.act(http.StatusBadRequest, "pause", query, "for", "5m").Body.String(), "reason is empty", `value="5m"`)
	contains(t, p.act(http.StatusBadRequest, "pause", query, "for", "long", "reason", "r").Body.String(), "for is &#34;long&#34;, must be a duration")
	contains(t, p.act(http.StatusBadRequest, "pause", query, "for", "48h", "reason", "r").Body.String(), "d is 48h0m0s, must be 0 or between", `value="48h"`)
	contains(t, p.act(http.StatusBadRequest, "pause", query, "reason", strings.Repeat("r", 257)).Body.String(), "must be between 1 and 256 bytes", `value="rrr`)
	p.act(http.StatusSeeOther, "pause", query, "for", "5m", "reason", "acme is down")
	contains(t, p.get(http.StatusOK, "/key?"+query+"&done=pause"), "Pause: done.", "is paused: no call begins for", "acme is down")
	form := p.form("end-pause", query)
	p.act(http.StatusSeeOther, "pause", query, "for", "10m", "reason", "still down")
	p.send(http.StatusConflict, "end-pause", form)
	p.act(http.StatusSeeOther, "end-pause", query)
	p.get(http.StatusConflict, "/end-pause?"+query)
	for _, wrong := range [][]string{
		{"n and rate are empty", "reason", "r"},
		{"n is &#34;many&#34;, must be a number", "reason", "r", "n", "many"},
		{"rate is &#34;fast&#34;, must be", "reason", "r", "rate", "fast"},
		{"burst must be empty without a rate", "reason", "r", "burst", "2", "n", "1"},
		{"For is 10000h0m0s", "reason", "r", "n", "1", "for", "10000h"},
	} {
		contains(t, p.act(http.StatusBadRequest, "limit", query, wrong[1:]...).Body.String(), wrong[0])
	}
	p.act(http.StatusSeeOther, "limit", query, "n", "2", "rate", "5/1s", "for", "1h", "reason", "acme is slow")
	if h, err := p.locks.Inspect(t.Context(), event.KindExclusive, "partner:acme"); err != nil || h.Restriction.Limit != 2 || h.Restriction.Rate.N != 5 || h.Restriction.Reason != "acme is slow" {
		t.Errorf("%+v, %v", h.Restriction, err)
	}
	p.act(http.StatusSeeOther, "end-limit", query)
	last := p.acts[len(p.acts)-2]
	if last.Verb != "limit" || last.Details != "2 at a time and 5/1s with burst 1 for 1h0m0s: acme is slow" {
		t.Errorf("%+v", last)
	}
}

// A key that must not be shown is in no response, and its links work.
func TestShowKey(t *testing.T) {
	const secret, record = "card-4111", "amount 12"
	p := open(t, true, inspect.Options{
		ShowKey: func(event.Kind, string) string { return "a card" },
		Record:  func(_ string, c idempotency.Content) string { return "record: " + string(c.Data) },
	})
	p.acquire(secret, lockcore.Terms{})
	text := p.get(http.StatusOK, "/")
	contains(t, text, "a card")
	link := regexp.MustCompile(`key\?(kind=exclusive&amp;ref=[0-9a-f]+)`).FindStringSubmatch(text)
	if link == nil {
		t.Fatalf("no link in %s", text)
	}
	query := unescape(link[1])
	for _, target := range []string{"/", "/key?" + query, "/revoke?" + query, "/pause?" + query, "/stuck", "/api/held", "/api/key?" + query} {
		lacks(t, p.get(http.StatusOK, target), secret)
	}
	w := p.act(http.StatusSeeOther, "pause", query, "reason", "r")
	lacks(t, w.Header().Get("Location"), secret)
	if p.acts[0].Key != secret {
		t.Errorf("%+v", p.acts)
	}
	contains(t, p.get(http.StatusNotFound, "/key?kind=exclusive&ref=00"), "this link is old")
	le, _, err := p.locks.Claim(t.Context(), "paid", lockcore.Claim{})
	if err == nil {
		var data []byte
		if data, err = (idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte(record)}).Encode(); err == nil {
			err = le.Complete(t.Context(), data, time.Hour)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	contains(t, p.get(http.StatusOK, "/key?kind=once&key=paid"), "record: "+record)
}

// A failure, the error of a task and unreadable data do not show a key either. The links of a key that no
// walk knows work.
func TestShowKeyInErrors(t *testing.T) {
	const secret = "card \"4111\" é"
	rdb := redis.NewClient(locktest.NewServer(t).Options())
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	p := &page{T: t, locks: locks, h: inspect.New(locks, inspect.Options{
		Allow: func(*http.Request) error { return nil },
		Pace:  -1,
		ShowKey: func(kind event.Kind, key string) string {
			if kind == event.KindOnce {
				return "a card"
			}
			return key
		},
		Tasks: func(_ context.Context, id string) ([]inspect.Task, error) {
			if id != "job" {
				return nil, nil
			}
			return []inspect.Task{{ID: id, State: "archived", LastErr: fmt.Sprintf("lockcore: %q was abandoned; lockcore: %q was abandoned", "other", secret)}, {ID: id, State: "retry", LastErr: fmt.Sprintf("lockcore: %q was abandoned", secret)}}, nil
		},
	})}
	clean := func(status int, target string) string {
		t.Helper()
		text := p.get(status, target)
		lacks(t, text, "4111")
		return text
	}
	le, _, err := locks.Claim(t.Context(), secret, lockcore.Claim{})
	if err == nil {
		var data []byte
		if data, err = (idempotency.Content{Ending: idempotency.Failed, Data: []byte("refused: " + secret)}).Encode(); err == nil {
			err = le.Complete(t.Context(), data, time.Hour)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	contains(t, clean(http.StatusOK, "/api/why?q=job"), "a card is done (failed: ")
	link := regexp.MustCompile(`key\?(kind=once&amp;ref=[0-9a-f]+)`).FindStringSubmatch(clean(http.StatusOK, "/find?q=job"))
	if link == nil {
		t.Fatal("no link")
	}
	query := unescape(link[1])
	contains(t, clean(http.StatusOK, "/key?"+query), "refused: a card")
	clean(http.StatusOK, "/api/key?"+query)
	clean(http.StatusConflict, "/revoke?"+query)
	p.act(http.StatusSeeOther, "clear", query)
	clean(http.StatusOK, "/key?"+query)
	if err := rdb.HSet(t.Context(), `holdfast:2:o:{card%20"4111"%20%C3%A9}`, "s", "h", "t", "many").Err(); err != nil {
		t.Fatal(err)
	}
	contains(t, clean(http.StatusConflict, "/key?"+query), "must be a number")
	clean(http.StatusOK, "/clear?"+query)
	contains(t, clean(http.StatusConflict, "/api/why?q=job"), "must be a number")
}

// An answer has the keys of each task with the ID, and the key with that name. Text of an error that can be no
// key changes nothing.
func TestWhyFindsAllKeys(t *testing.T) {
	p := open(t, false, inspect.Options{Tasks: func(_ context.Context, id string) ([]inspect.Task, error) {
		return []inspect.Task{
			{ID: id, Queue: "a", State: "retry", LastErr: `lockcore: "account:1" is busy`},
			{ID: id, Queue: "b", State: "retry", LastErr: fmt.Sprintf("lockcore: %q is busy", strings.Repeat("k", 600))},
			{ID: id, Queue: "c", State: "pending"},
		}, nil
	}})
	p.acquire("account:1", lockcore.Terms{})
	p.acquire("job", lockcore.Terms{})
	contains(t, p.get(http.StatusOK, "/api/why?q=job"), "account:1 is held by", "job is held by", `"queue": "b"`)
	contains(t, p.get(http.StatusOK, "/find?q="+strings.Repeat("j", 600)), "account:1 is held by")
}

// The page of a key shows the newest task of Latest, and a hold that is on its way with a ticket.
func TestLatestAndTicket(t *testing.T) {
	p := open(t, false, inspect.Options{})
	if _, err := access.Of(p.locks).NoteTrigger(t.Context(), "k", "/default/7", true); err != nil {
		t.Fatal(err)
	}
	if _, err := p.acquire("k", lockcore.Terms{}).Ticket(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	contains(t, p.get(http.StatusOK, "/key?kind=exclusive&key=k"), "not done: task 7, queue default", "no: transferred with a ticket")
	contains(t, p.get(http.StatusOK, "/api/key?kind=exclusive&key=k"), `"latest_task": {`, `"transferred": true`)
}

// The start of a name finds the keys that begin with what is shown of them.
func TestWhyFindsTheStart(t *testing.T) {
	p := open(t, false, inspect.Options{ShowKey: func(_ event.Kind, key string) string { return strings.Replace(key, "secret", "k", 1) }})
	for _, key := range []string{"secret:2", "secret:1", "other"} {
		p.acquire(key, lockcore.Terms{})
	}
	contains(t, p.get(http.StatusOK, "/find?q=k:"), "Nothing has the name k:. These keys begin with it: k:1, k:2.", "Keys that begin so", `">k:2</a>`)
	contains(t, p.get(http.StatusOK, "/api/why?q=k:"), `"similar": true`, `"key": "k:1"`)
	contains(t, p.get(http.StatusOK, "/find?q=secret"), "Nothing is known of")
}

// A limited key that is full says so, and who waits. A key that cools and is paused says both.
func TestWaitersAreClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, false, inspect.Options{})
		for range 2 {
			le, err := p.locks.AcquireShare(t.Context(), "acme", lockcore.Limit{N: 2}, lockcore.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			defer le.Release(context.WithoutCancel(t.Context())) //nolint:errcheck // it only ends the test
		}
		lacks(t, p.get(http.StatusOK, "/key?kind=exclusive&key=acme"), "waiting here")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := p.locks.AcquireShare(ctx, "acme", lockcore.Limit{N: 2}, lockcore.Terms{Wait: time.Minute})
			ended <- err
		}()
		time.Sleep(2 * time.Second)
		contains(t, p.get(http.StatusOK, "/key?kind=exclusive&key=acme"), "shared (weight 2 of 2, full)", "the next call waits until a handler returns", "<dt>waiting here</dt><dd>1, the oldest for 2s: calls of the process that serves this page")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cools := p.acquire("cools", lockcore.Terms{MinHold: time.Hour})
		if err := errors.Join(cools.Release(t.Context()), p.locks.Pause(t.Context(), "cools", time.Minute, "partner is down")); err != nil {
			t.Fatal(err)
		}
		contains(t, p.get(http.StatusOK, "/key?kind=exclusive&key=cools"), "cools is cooling: it is free in ", "cools is paused: no call begins for 1m0s (partner is down")
		time.Sleep(2 * time.Minute) // otherwise a goroutine is left
	})
}

// The lists as JSON have the fields of the command.
func TestAPI(t *testing.T) {
	p := open(t, false, inspect.Options{})
	p.acquire("k", lockcore.Terms{})
	var all struct {
		AsOf time.Time `json:"as_of"`
		Keys []struct {
			Key    string `json:"key"`
			State  string `json:"state"`
			Holder struct {
				Task string `json:"task"`
			} `json:"holder"`
		} `json:"keys"`
	}
	for _, target := range []string{"/api/held", "/api/key?kind=exclusive&key=k", "/api/why?q=k"} {
		if err := json.Unmarshal([]byte(p.get(http.StatusOK, target)), &all); err != nil || len(all.Keys) != 1 || all.Keys[0].Key != "k" || all.Keys[0].Holder.Task != "job-7" || time.Since(all.AsOf) > time.Minute {
			t.Errorf("%s: %+v, %v", target, all, err)
		}
	}
	contains(t, p.get(http.StatusOK, "/api/stuck"), `"keys": []`)
	contains(t, p.get(http.StatusBadRequest, "/api/key?kind=x&key=k"), `"error": "kind must be`)
	contains(t, p.get(http.StatusOK, "/api/why?q=nobody"), "Nothing is known of")
	contains(t, p.get(http.StatusOK, "/api/why?q=nobody"), "tasks were not searched", `"tasks_searched": false`)
	p = open(t, false, inspect.Options{Tasks: func(context.Context, string) ([]inspect.Task, error) { return nil, operator.ErrNotSearched }})
	contains(t, p.get(http.StatusOK, "/api/why?q=nobody"), "tasks were not searched")
	p = open(t, false, inspect.Options{Tasks: func(context.Context, string) ([]inspect.Task, error) { return nil, nil }})
	contains(t, p.get(http.StatusOK, "/api/why?q=nobody"), "no task has that ID")
}

// A HEAD request for the stream ends.
func TestHeadOfEvents(t *testing.T) {
	p := open(t, false, inspect.Options{})
	w := p.do(httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/events", http.NoBody))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() != 0 {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A stream shows a new hold, and there are at most 32.
func TestEvents(t *testing.T) {
	p := open(t, false, inspect.Options{})
	srv := httptest.NewServer(p.h)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // before Close, which waits for the streams
	stream := func() *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/events?screen=held", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	first := stream() //nolint:bodyclose // by Cleanup
	var buf [1 << 14]byte
	n, _ := first.Body.Read(buf[:])
	contains(t, string(buf[:n]), "retry: ")
	p.acquire("late", lockcore.Terms{})
	text := ""
	for !strings.Contains(text, `late\u003c/a`) {
		n, err := first.Body.Read(buf[:])
		if text += string(buf[:n]); err != nil {
			t.Fatalf("%v after %s", err, text)
		}
	}
	for range 31 {
		if resp := stream(); resp.StatusCode != http.StatusOK || //nolint:bodyclose // by Cleanup
			resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v", resp.Status)
		}
	}
	resp := stream() //nolint:bodyclose // by Cleanup
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the 33rd stream: %s %s", resp.Status, body)
	}
}

// New refuses options that cannot work, and says which.
func TestOptions(t *testing.T) {
	for want, o := range map[string]inspect.Options{
		"Options.Pace is 1h0m0s, must be at most 1m0s":                                   {Pace: time.Hour},
		`Options.TraceURL is "tempo/{trace_id}", must be an http or https URL`:           {TraceURL: "tempo/{trace_id}"},
		`Options.TraceURL is "javascript:alert('{trace_id}')", must be an http or https`: {TraceURL: "javascript:alert('{trace_id}')"},
		`Options.TraceURL is "https://tempo", must be an http or https URL`:              {TraceURL: "https://tempo"},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "locks is nil") {
			t.Errorf("panic %s", got)
		}
	}()
	inspect.New(nil, inspect.Options{})
}

// A trace of the holder is linked.
func TestTrace(t *testing.T) {
	p := open(t, false, inspect.Options{TraceURL: "https://tempo.example/{trace_id}?orgId=1"})
	p.acquire("plain", lockcore.Terms{})
	lacks(t, p.get(http.StatusOK, "/"), "tempo.example")
}
