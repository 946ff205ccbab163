//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/pgtest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

// asCommand is an environment variable that makes the test binary run as the command.
const asCommand = "HOLDFAST_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// scene is a database with keys: account:42 is held and its second call waits, payment:7 is done and
// partner:acme is paused.
type scene struct {
	*testing.T
	dsn  string
	held *lockcore.Lease
	next chan error // of the call that waits
}

func play(t *testing.T) *scene {
	t.Helper()
	testlevel.Full(t)
	pgtest.Need(t)
	server, err := pgtest.Start(pgtest.Fast)
	s := &scene{T: t, next: make(chan error, 1)}
	s.ok(err)
	t.Cleanup(server.Stop)
	s.dsn = server.DSN("postgres")
	pool, err := pgxpool.New(t.Context(), s.dsn)
	s.ok(err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), postgres.Create(""))
	s.ok(err)
	locker := func() *lockcore.Locker {
		l, err := postgres.New(pool, postgres.Options{Options: lockcore.Options{Observer: event.Discard}})
		s.ok(err)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		return l
	}
	l, other := locker(), locker()
	s.held, err = l.Acquire(lockcore.WithTask(t.Context(), "job 7"), "account:42", lockcore.Terms{})
	s.ok(err)
	done, _, err := l.Claim(t.Context(), "payment:7", lockcore.Claim{})
	s.ok(err)
	record, err := idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte(`"receipt 7"`)}.Encode()
	s.ok(err)
	s.ok(done.Complete(t.Context(), record, time.Hour))
	s.ok(l.Pause(t.Context(), "partner:acme", time.Hour, "partner is down"))
	go func() {
		lease, err := other.Acquire(context.WithoutCancel(t.Context()), "account:42", lockcore.Terms{Wait: 5 * time.Minute})
		if err == nil {
			err = lease.Release(context.WithoutCancel(t.Context()))
		}
		s.next <- err
	}()
	return s
}

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// command returns the command, which gets the DSN from the environment.
func (s *scene) command(args ...string) *exec.Cmd {
	s.Helper()
	self, err := os.Executable()
	s.ok(err)
	c := exec.CommandContext(s.Context(), self, args...)
	c.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_POSTGRES="+s.dsn)
	return c
}

// revoked waits until the holder is told, and then for the next call.
func (s *scene) revoked() {
	s.Helper()
	<-s.held.Context().Done()
	if err := context.Cause(s.held.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		s.Errorf("the hold ended with %v", err)
	}
	_ = s.held.Release(s.Context())
	s.ok(<-s.next)
}

// Each command does on PostgreSQL what it does on Redis.
func TestCommands(t *testing.T) {
	s := play(t)
	for _, c := range []struct {
		args string
		code int
		want string // a pattern of stdout and stderr
	}{
		{"ls", 0, `(?s)exclusive +held +account:42 .*exclusive +cooling, paused +partner:acme .*once +done \(ok\) +payment:7 `},
		{"ls -match account:* -json", 0, `(?s)"key": "account:42".*"complete": true`},
		{"show account:42", 0, `(?m)^holder .*task "job 7"$`},
		{"show -result payment:7", 0, "receipt 7"},
		{"why account:42", 0, `account:42 is held by .* task "job 7"`},
		{"why nothing", 1, "nothing"},
		{"limit -n 2 -for 1h -yes reports", 0, "restricted"},
		{"limit -end -yes reports", 0, "unrestricted"},
		{"pause -end -yes partner:acme", 0, "resumed"},
		{"pause -for 1m -yes partner:acme", 0, "paused"},
		{"wake account:42", 1, "has no parked tasks"},
		{"clear -once -yes payment:7", 0, "cleared"},
		{"show payment:7", 1, "is free"},
		{"doctor", 1, `(?s)problem fsync.*note server`},
		{"doctor -postgres dbname=none", 2, "The server has no such database: is -postgres right"},
		{"show -postgres host=/nonexistent account:42", 2, "is -postgres right, and is PostgreSQL running"},
		{"ls -schema nowhere", 2, "execute the statements of postgres.Create, or set Options.Schema"},
		{"ls -postgres dbname", 2, "holdfast ls: -postgres: "},
		{"revoke -yes account:42", 0, "revoked"},
	} {
		cmd := s.command(strings.Fields(c.args)...)
		cmd.Env = append(cmd.Env, "PGHOST="+regexp.MustCompile(`host=(\S+)`).FindStringSubmatch(s.dsn)[1], "PGUSER=postgres")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("%s: %v, exit code %d, want %d and %s in\n%s", c.args, err, code, c.code, c.want, out)
		}
	}
	s.revoked()
}

// watch prints a key, and what becomes of it, until a signal ends it.
func TestWatch(t *testing.T) {
	s := play(t)
	lines, end := s.start("watch", "-every", "100ms", "account:42")
	if first := lines(); !strings.Contains(first, "account:42 is held by") {
		t.Errorf("watch prints %q", first)
	}
	s.ok(s.held.Release(s.Context()))
	s.ok(<-s.next)
	for line := lines(); !strings.Contains(line, "account:42 is free"); line = lines() {
		if line == "" {
			t.Fatal("watch ended early")
		}
	}
	end()
}

// start starts the command. lines returns the next line of its stdout. end ends it by a signal.
func (s *scene) start(args ...string) (lines func() string, end func()) {
	s.Helper()
	c := s.command(args...)
	out, err := c.StdoutPipe()
	s.ok(err)
	c.Stderr = os.Stderr
	s.ok(c.Start())
	r := bufio.NewReader(out)
	lines = func() string {
		line, _ := r.ReadString('\n')
		return strings.TrimSpace(line)
	}
	return lines, func() {
		s.Helper()
		s.ok(c.Process.Signal(syscall.SIGTERM))
		_, _ = io.Copy(io.Discard, r)
		s.ok(c.Wait())
	}
}

// The page of serve shows the keys of PostgreSQL, and revokes a hold.
func TestServe(t *testing.T) {
	s := play(t)
	lines, end := s.start("serve", "-listen", "127.0.0.1:0", "-act")
	page := lines()
	jar, err := cookiejar.New(nil)
	s.ok(err)
	b := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer b.CloseIdleConnections()
	ask := func(method, path string, form url.Values) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, page+path, strings.NewReader(form.Encode()))
		s.ok(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := b.Do(r)
		s.ok(err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		s.ok(err)
		return answer.StatusCode, string(text)
	}
	await := func(path string, want ...string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			status, body := ask(http.MethodGet, path, nil)
			missing := ""
			for _, w := range want {
				if status != http.StatusOK || !strings.Contains(body, w) {
					missing = w
				}
			}
			if missing == "" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d, not within 30 s: %s in %s", path, status, missing, body)
			}
		}
	}
	await("", "account:42", "job 7", "partner:acme", "cooling, paused")
	await("key?kind=exclusive&key=partner:acme", "partner is down")
	await("key?kind=exclusive&key=account:42", "1 call in 1 process")
	await("key?kind=once&key=payment:7", "done (ok)")
	await("api/why?q=account:42", "is held by")
	const query = "revoke?kind=exclusive&key=account:42"
	_, body := ask(http.MethodGet, query, nil)
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	if status, body := ask(http.MethodPost, query, form); status != http.StatusSeeOther {
		t.Errorf("%v: %d %s", form, status, body)
	}
	s.revoked()
	if status, body := ask(http.MethodPost, query, form); status != http.StatusConflict {
		t.Error(fmt.Sprint("again: ", status, body))
	}
	end()
}
