package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// running is a call of a command that works until it is interrupted.
type running struct {
	out   *bufio.Reader
	err   *screen
	after func() (code int) // interrupts it
}

// screen has what was printed; several goroutines may print.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// text returns what was printed since the last call.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.b.Reset()
	return s.b.String()
}

// start starts a command. The end of the test interrupts it, if after was not called.
func (c call) start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r, ended := &running{out: bufio.NewReader(out), err: new(screen)}, make(chan int, 1)
	sh := &shell{in: strings.NewReader(""), out: in, err: r.err, getenv: func(name string) string { return c.env[name] }}
	go func() { // ends with ctx
		code := sh.run(ctx, args)
		_ = in.Close()
		ended <- code
	}()
	r.after = sync.OnceValue(func() int {
		interrupt()
		_, _ = io.Copy(io.Discard, out)
		return <-ended
	})
	t.Cleanup(func() { r.after() })
	return r
}

// serve starts holdfast serve, and returns the URL of the page.
func (c call) serve(t *testing.T, args ...string) (*running, string) {
	t.Helper()
	r := c.start(t, append([]string{"serve", "-listen", "127.0.0.1:0"}, args...)...)
	line, _ := r.out.ReadString('\n')
	if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/\n$`).MatchString(line) {
		t.Fatalf("serve printed %q %q", line, r.err.text())
	}
	return r, strings.TrimSpace(line)
}

// browser asks a page.
type browser struct {
	*testing.T
	http.Client
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{t, http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// ask sends a GET request, or with a form a POST request. headers are names and values; Host is one.
func (b *browser) ask(target string, form url.Values, headers ...string) (status int, body string) {
	b.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(b.Context(), method, target, strings.NewReader(form.Encode()))
	ok(b.T, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	res, err := b.Do(r)
	ok(b.T, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	ok(b.T, err)
	return res.StatusCode, string(text)
}

// form returns the hidden inputs of a confirmation.
func (b *browser) form(target string) url.Values {
	b.Helper()
	status, body := b.ask(target, nil)
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	if status != http.StatusOK || !form.Has("seen") {
		b.Fatalf("%s: %d %s", target, status, body)
	}
	return form
}

// eventually waits until done returns true, or fails with what is missing.
func eventually(t *testing.T, missing *string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", *missing)
		}
	}
}

// serve shows the keys to those who use its own address, changes nothing, and ends although a page is
// open.
func TestServe(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	furnish(t, locker(t, s.Client(t), ""))
	r, page := call{env: map[string]string{"HOLDFAST_REDIS": s.Addr()}}.serve(t, "-trace-url", "https://traces.example/{trace_id}")
	b := newBrowser(t)
	var body string
	eventually(t, &body, func() bool {
		var status int
		status, body = b.ask(page, nil)
		return status == http.StatusOK && strings.Contains(body, "account:42")
	})
	if _, body := b.ask(page+"api/why?q=account:42", nil); !strings.Contains(body, "is held by") {
		t.Error(body)
	}
	for host, want := range map[string]int{
		"evil.example": http.StatusForbidden, "evil.example:8321": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
		"localhost": http.StatusOK, "localhost:8321": http.StatusOK, "[::1]:8321": http.StatusOK, "127.0.0.1": http.StatusOK,
	} {
		if status, body := b.ask(page, nil, "Host", host); status != want {
			t.Errorf("Host %s: %d %s", host, status, body)
		}
	}
	if status, _ := b.ask(page+"revoke", url.Values{"kind": {"exclusive"}, "key": {"account:42"}}); status != http.StatusNotFound {
		t.Errorf("revoke without -act: %d", status)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"events", http.NoBody)
	ok(t, err)
	stream, err := b.Do(request)
	ok(t, err)
	defer func() { _ = stream.Body.Close() }()
	if code, errs := r.after(), r.err.text(); code != exitOK || errs != "" {
		t.Errorf("%d %q", code, errs)
	}
}

// On all addresses of the machine, serve answers to each of them, but to no name.
func TestServeEverywhere(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	b := newBrowser(t)
	for _, c := range []struct {
		args  string
		named int // the status of a request for a name
	}{{"-listen 0.0.0.0:0", http.StatusForbidden}, {"-listen :0", http.StatusForbidden}, {"-listen :0 -act -behind-proxy other.example", http.StatusForbidden}, {"-listen :0 -act -behind-proxy OPS.example", http.StatusOK}} {
		r := call{}.start(t, append([]string{"serve", "-redis", s.Addr()}, strings.Fields(c.args)...)...)
		line, _ := r.out.ReadString('\n')
		port := regexp.MustCompile(`:(\d+)/\n$`).FindStringSubmatch(line)
		if port == nil {
			t.Fatalf("%s: printed %q %q", c.args, line, r.err.text())
		}
		for host, want := range map[string]int{"10.0.0.1": http.StatusOK, "[fd00::1]:8321": http.StatusOK, "ops.example": c.named} {
			if status, body := b.ask("http://127.0.0.1:"+port[1]+"/find", nil, "Host", host); status != want {
				t.Errorf("%s: Host %s: %d %s", c.args, host, status, body)
			}
		}
	}
}

// After Ctrl-C no request begins, and an action that is under way ends as usual.
func TestServeFinishesActions(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	r, page := call{}.serve(t, "-redis", s.Addr(), "-act")
	form := newBrowser(t).form(page + "pause?kind=exclusive&key=account:42")
	form.Set("for", "1m")
	form.Set("reason", "partner is down")
	dial := func() (net.Conn, error) {
		return new(net.Dialer).DialContext(t.Context(), "tcp", strings.Trim(strings.TrimPrefix(page, "http://"), "/"))
	}
	c, err := dial()
	ok(t, err)
	defer func() { _ = c.Close() }()
	body := form.Encode()
	_, err = fmt.Fprintf(c, "POST /pause?kind=exclusive&key=account:42 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	ok(t, err)
	answer := bufio.NewReader(c)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") { // the handler reads the form
		t.Fatalf("%q %v", line, err)
	}
	_, _ = answer.ReadString('\n')
	ended := make(chan int, 1)
	go func() { ended <- r.after() }()
	missing := "the port is closed"
	eventually(t, &missing, func() bool {
		other, err := dial()
		if err == nil {
			_ = other.Close()
		}
		return err != nil
	})
	_, err = io.WriteString(c, body)
	ok(t, err)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, " 303 ") {
		t.Errorf("%q %v", line, err)
	}
	if code, errs := <-ended, r.err.text(); code != exitOK || !strings.HasSuffix(errs, ": done\n") {
		t.Errorf("%d %q", code, errs)
	}
	if h, err := l.Inspect(t.Context(), event.KindExclusive, "account:42"); err != nil || h.PauseLeft <= 0 {
		t.Errorf("not paused: %+v %v", h, err)
	}
}

// serve does not start with what it cannot do, or must not.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	ok(t, err)
	defer func() { _ = taken.Close() }()
	for args, want := range map[string]string{
		"-act -listen 0.0.0.0:0":                 "pass -behind-proxy NAME",
		"-act -listen :0":                        "pass -behind-proxy NAME",
		"-act -listen ops.example:0":             "pass -behind-proxy NAME",
		"-listen 8321":                           "-listen is \"8321\", must be host:port",
		"-listen 127.0.0.1:http-but-wrong":       "http-but-wrong",
		"-listen " + taken.Addr().String():       "address already in use",
		"-trace-url traces.example/{trace_id}":   "must be an http or https URL",
		"-trace-url https://traces.example":      "contains {trace_id}",
		"-redis 127.0.0.1:1 -listen 127.0.0.1:0": "unavailable",
		"account:42":                             "unexpected argument",
	} {
		code, out, errs := call{env: map[string]string{"HOLDFAST_REDIS": s.Addr()}}.run(t, append([]string{"serve"}, strings.Fields(args)...)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
}

// With -act the page revokes a key, and each attempt is printed. Behind a proxy the name of the user is
// printed, and the page has only the name that it has in the proxy.
func TestServeActs(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	b := newBrowser(t)
	for _, c := range []struct {
		args, headers []string
		actor         string
	}{
		{nil, nil, `127\.0\.0\.1:\d+`},
		{[]string{"-behind-proxy", "ops.example"}, []string{"Host", "ops.example", "X-Forwarded-User", "ann", "X-Forwarded-For", "10.0.0.7"}, "ann"},
		{[]string{"-behind-proxy", "ops.example"}, []string{"X-Forwarded-For", "10.0.0.7"}, `10\.0\.0\.7`},
		{[]string{"-behind-proxy", "ops.example"}, []string{"X-Forwarded-User", "ann\u009b31m"}, `"ann\\u009b31m"`},
	} {
		held, err := l.Acquire(t.Context(), "account:42", lockcore.Terms{})
		ok(t, err)
		r, page := call{}.serve(t, append([]string{"-redis", s.Addr(), "-act"}, c.args...)...)
		const query = "?kind=exclusive&key=account:42"
		form := b.form(page + "revoke" + query)
		if status, body := b.ask(page+"revoke"+query, form, append(c.headers, "Sec-Fetch-Site", "cross-site")...); status != http.StatusForbidden || held.Context().Err() != nil {
			t.Errorf("%q: from another site: %d %s", c.args, status, body)
		}
		if status, body := b.ask(page+"revoke"+query, form, append(c.headers, "Host", "evil.example", "Sec-Fetch-Site", "same-origin")...); status != http.StatusForbidden || held.Context().Err() != nil {
			t.Errorf("%q: under another name: %d %s", c.args, status, body)
		}
		if status, body := b.ask(page+"revoke"+query, form, c.headers...); status != http.StatusSeeOther {
			t.Errorf("%q: %d %s", c.args, status, body)
		}
		<-held.Context().Done()
		if err := context.Cause(held.Context()); !errors.Is(err, lockcore.ErrRevoked) {
			t.Errorf("%q: ended with %v", c.args, err)
		}
		_ = held.Release(t.Context())
		if status, body := b.ask(page+"revoke"+query, form, c.headers...); status != http.StatusConflict {
			t.Errorf("%q: again: %d %s", c.args, status, body)
		}
		pause := b.form(page + "pause" + query)
		pause.Set("for", "1m")
		pause.Set("reason", "partner is down\n")
		if status, body := b.ask(page+"pause"+query, pause, c.headers...); status != http.StatusSeeOther {
			t.Errorf("%q: %d %s", c.args, status, body)
		}
		ok(t, l.Pause(t.Context(), "account:42", 0, ""))
		if code := r.after(); code != exitOK {
			t.Errorf("%q: %d", c.args, code)
		}
		const at = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ `
		want := "^" + at + c.actor + ": revoke exclusive account:42: done\n" + at + c.actor + ": revoke exclusive account:42: failed: .*changed since it was shown.*\n" +
			at + c.actor + `: "pause 1m0s: partner is down\\n" exclusive account:42: done` + "\n$"
		if errs := r.err.text(); !regexp.MustCompile(want).MatchString(errs) {
			t.Errorf("%q: printed %q, want %s", c.args, errs, want)
		}
	}
}

// why explains an asynq task in a worker, one that is parked and one that comes back, a key of each kind,
// and an HTTP request. Of anything else it says that nothing is known.
func TestWhy(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	l := locker(t, rdb, "")
	env := map[string]string{"HOLDFAST_REDIS": s.Addr()}
	says := func(args string, want ...string) {
		t.Helper()
		all := append([]string{"why"}, strings.Fields(args)...)
		code, out, errs, missing := exitOK, "", "", ""
		eventually(t, &missing, func() bool {
			code, out, errs = call{env: env}.run(t, all...)
			for _, part := range want {
				if !strings.Contains(out, part) {
					missing = fmt.Sprintf("%s: no %q in %d %q %q", args, part, code, out, errs)
					return false
				}
			}
			return true
		})
		if code != exitOK || errs != "" {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
	client, release := asynq.NewClientFromRedisClient(rdb), make(chan struct{})
	enqueue := func(id, queue string) {
		t.Helper()
		_, err := client.Enqueue(asynq.NewTask("charge", nil), asynq.TaskID(id), asynq.Queue(queue), asynq.Retention(time.Hour))
		ok(t, err)
	}
	serve := func(queue string, configure func(asynq.Config) asynq.Config) {
		t.Helper()
		mux := asynq.NewServeMux()
		mux.Use(asynqmw.Exclusive(l, asynqmw.ByType(), asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: 100 * time.Millisecond}}))
		mux.HandleFunc("charge", func(context.Context, *asynq.Task) error { <-release; return nil })
		srv := asynq.NewServerFromRedisClient(rdb, configure(asynq.Config{Concurrency: 3, Queues: map[string]int{queue: 1}, TaskCheckInterval: 20 * time.Millisecond, LogLevel: asynq.FatalLevel}))
		ok(t, srv.Start(mux))
		t.Cleanup(srv.Shutdown)
	}
	serve("park", func(c asynq.Config) asynq.Config {
		return asynqmw.ConfigureParking(c, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(rdb)})
	})
	enqueue("runs", "park")
	says("runs", "Task runs of queue park runs, and has its key. type:charge is held by", "so its process lived then", `task "runs"`, "lease left")
	enqueue("parked", "park")
	says("parked", "Task parked of queue park is parked: it comes back when its key is free, or at", "type:charge is held by", "Parked tasks: 1")
	for _, queue := range []string{"1", "2", "3", "4", "5"} { // of which none has a worker
		enqueue("parked", queue)
	}
	says("parked", "Task parked of queue park is parked", "Task parked of queue 5 waits for a worker.", "type:charge is held by")
	serve("retry", asynqmw.Configure)
	enqueue("busy", "retry")
	says("busy", "Task busy of queue retry failed or found its key busy", "and comes back, at", "type:charge is held by")
	says("-json parked", `"subject": "parked"`, `"state": "retry"`, `"key": "type:charge"`, `"task": "runs"`, `"holds": false`)
	close(release)
	says("runs", "Task runs of queue park is completed.")

	furnish(t, l)
	says("account:42", "account:42 is held by", "to ask it to stop: holdfast revoke account:42", "lease left")
	says("payment:8", "payment:8 was abandoned by", "holdfast clear -once")
	for _, secret := range []string{"", "0123456789abcdef0123456789abcdef"} {
		o := httpmw.IdempotentOptions{}
		if env["HOLDFAST_HTTP_SECRET"] = secret; secret != "" {
			o.Secret = []byte(secret)
		}
		key, err := o.KeyOf("alice", http.MethodPut, "/charges", "k-1")
		ok(t, err)
		_, _, err = l.Claim(t.Context(), key, lockcore.Claim{})
		ok(t, err)
		says("-scope alice -method PUT -path /charges k-1", key+" is held by")
	}
	for _, args := range []string{"none", "-json none"} {
		code, out, errs := call{env: env}.run(t, append([]string{"why"}, strings.Fields(args)...)...)
		if code != exitProblem || errs != "" || !strings.Contains(out, "Nothing is known of none") {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
	code, out, errs := call{env: env}.run(t, "why", "payment:")
	if code != exitProblem || errs != "" || !strings.HasPrefix(out, "Nothing has the name payment:. These keys begin with it: payment:5, payment:6, ") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	for args, want := range map[string]string{"-scope alice k": "-scope and -path go together", "-path /charges k": "-scope and -path go together", "": "is missing"} {
		if code, out, errs := (call{env: env}).run(t, append([]string{"why"}, strings.Fields(args)...)...); code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %q %q", args, code, out, errs)
		}
	}
}

// watch prints a key whenever it changes, and ends with exitOK.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	text := call{}.start(t, "watch", "-redis", s.Addr(), "-every", "100ms", "account:42")
	object := call{}.start(t, "watch", "-redis", s.Addr(), "-every", "100ms", "-json", "account:42")
	objects := json.NewDecoder(object.out)
	next := func(state lockcore.State, want string) {
		t.Helper()
		if line, _ := text.out.ReadString('\n'); !regexp.MustCompile(`^\d\d:\d\d:\d\d  account:42 is ` + want).MatchString(line) {
			t.Fatalf("printed %q %q, want %q", line, text.err.text(), want)
		}
		var k struct{ Keys []operator.Holding }
		if err := objects.Decode(&k); err != nil || len(k.Keys) != 1 || k.Keys[0].State != state {
			t.Fatalf("printed %+v, %v, %q, want %s", k, err, object.err.text(), state)
		}
	}
	next(lockcore.StateFree, "free")
	held, err := l.Acquire(t.Context(), "account:42", lockcore.Terms{})
	ok(t, err)
	next(lockcore.StateHeld, "held by ")
	ok(t, l.Revoke(t.Context(), event.KindExclusive, "account:42"))
	next(lockcore.StateHeld, "held by .* It was revoked")
	_ = held.Release(t.Context())
	next(lockcore.StateFree, "free")
	ok(t, l.Pause(t.Context(), "account:42", time.Minute, "down"))
	next(lockcore.StateCooling, "paused: .*down")
	for _, r := range []*running{text, object} {
		if code, errs := r.after(), r.err.text(); code != exitOK || errs != "" {
			t.Errorf("%d %q", code, errs)
		}
	}
	if code, _, errs := (call{}).run(t, "watch", "-every", "99ms", "k"); code != exitFailed || !strings.Contains(errs, "-every is 99ms, must be at least 100ms") {
		t.Errorf("%d %q", code, errs)
	}
}
