package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// many acquires n keys.
func many(t *testing.T, rdb redis.UniversalClient, n int) {
	t.Helper()
	l := locker(t, rdb, "")
	for i := range n {
		_, err := l.AcquireFixed(t.Context(), fmt.Sprintf("account:%04d", i), lockcore.Terms{Wait: time.Minute, Lease: time.Hour})
		ok(t, err)
	}
}

// stdout calls before ahead of its nth write, which is one page of ls. n counts from 1.
type stdout struct {
	bytes.Buffer
	before func(n int) error
	n      int
	first  int // bytes of the first write
}

func (w *stdout) Write(b []byte) (int, error) {
	if w.n++; w.n == 1 {
		w.first = len(b)
	}
	if w.before != nil {
		if err := w.before(w.n); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(b)
}

func (w *stdout) run(ctx context.Context, args ...string) (code int, errs string) {
	var e bytes.Buffer
	sh := &shell{in: strings.NewReader(""), out: w, err: &e, getenv: func(string) string { return "" }}
	code = sh.run(ctx, args)
	return code, e.String()
}

// columnOf returns the column of keys of a table.
func columnOf(table string) (keys []string) {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 2 && f[2] != "KEY" {
			keys = append(keys, f[2])
		}
	}
	return keys
}

// ls prints a long list page by page, while it reads the next keys. Each page is sorted, the
// columns of all pages are aligned, and no key is missing.
func TestLongList(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	many(t, s.Client(t), 2500)
	var w stdout
	code, errs := w.run(t.Context(), "ls", "-redis", s.Addr(), "-max", "5000")
	got := columnOf(w.String())
	if code != exitOK || errs != "" || w.n < 3 || len(got) < 2500 || !slices.IsSorted(got[:1000]) || !slices.IsSorted(got[1000:2000]) {
		t.Errorf("%d %q: %d keys in %d pages", code, errs, len(got), w.n)
	}
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 2500 {
		t.Errorf("%d different keys", n)
	}
	lines := strings.Split(w.String(), "\n")
	if a, b := strings.Index(lines[1], "account:"), strings.Index(lines[1500], "account:"); a != b {
		t.Errorf("the keys of the first page are in column %d, those of the second in column %d", a, b)
	}
	w = stdout{}
	var k keys
	code, errs = w.run(t.Context(), "ls", "-json", "-redis", s.Addr(), "-max", "5000")
	if err := json.Unmarshal(w.Bytes(), &k); err != nil || code != exitOK || errs != "" || w.n < 3 || len(k.Keys) < 2500 || !k.Complete || k.AsOf.IsZero() {
		t.Errorf("-json: %d %q %v: %d keys in %d pages, complete %t", code, errs, err, len(k.Keys), w.n, k.Complete)
	}
	w = stdout{before: func(n int) error {
		if n == 2 {
			return syscall.ENOSPC
		}
		return nil
	}}
	if code, errs := w.run(t.Context(), "ls", "-redis", s.Addr(), "-max", "5000"); code != exitFailed || !strings.Contains(errs, "no space left") || w.n != 2 {
		t.Errorf("a full disk: %d %q after %d writes", code, errs, w.n)
	}
}

// If -timeout, a signal or an error ends the list early, ls prints what was found and says that the
// list is incomplete. It does not doubt the address of a server that has replied.
func TestIncompleteList(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		says string
		end  func(*redistest.Server, context.CancelCauseFunc) // nil: -timeout
	}{
		"timeout": {exitProblem, "not done within ", nil},
		"signal":  {exitProblem, "interrupted", func(_ *redistest.Server, end context.CancelCauseFunc) { end(errors.New("interrupted")) }},
		"error":   {exitFailed, "keys found before the error: ", func(s *redistest.Server, _ context.CancelCauseFunc) { s.Stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{"-json=false", "-json"} {
				s := redistest.Real(t)
				many(t, s.Client(t), 1500)
				var w stdout
				var code int
				var errs string
				for limit := time.Second; ; limit *= 2 { // until the first page is found in time
					ctx, end := context.WithCancelCause(t.Context())
					defer end(nil)
					began := time.Now()
					w = stdout{before: func(n int) error {
						switch {
						case n > 1:
						case c.end == nil:
							time.Sleep(limit - time.Since(began))
						default:
							c.end(s, end)
						}
						return nil
					}}
					args := []string{"ls", format, "-redis", s.Addr(), "-max", "5000"}
					if c.end == nil {
						args = append(args, "-timeout", limit.String())
					}
					if code, errs = w.run(ctx, args...); w.n > 0 || limit > time.Minute {
						break
					}
					if c.end == nil && (code != exitFailed || !strings.Contains(errs, c.says)) {
						t.Errorf("nothing found in time: %d %q", code, errs)
					}
				}
				n := len(columnOf(w.String()))
				if format == "-json" {
					var k keys
					ok(t, json.Unmarshal(w.Bytes(), &k))
					if n = len(k.Keys); k.Complete {
						t.Errorf("-json: complete")
					}
				}
				if n < 1000 || n >= 1500 || code != c.code || !strings.Contains(errs, c.says) || !strings.Contains(errs, fmt.Sprint(": ", n, ".")) || strings.Contains(errs, " right?") {
					t.Errorf("%s: %d %q, %d keys", format, code, errs, n)
				}
			}
		})
	}
}

// program starts the command as a process.
func program(t *testing.T, in *os.File, out io.Writer, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	ok(t, err)
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	if in != nil {
		c.Stdin = in
	}
	c.Stdout = out
	errs, err := c.StderrPipe()
	ok(t, err)
	ok(t, c.Start())
	return c, bufio.NewReader(errs)
}

// A reader that has enough, such as head, ends ls without a message.
func TestClosedPipe(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	many(t, s.Client(t), 2500)
	r, w, err := os.Pipe()
	ok(t, err)
	c, errs := program(t, nil, w, "ls", "-redis", s.Addr(), "-max", "5000")
	ok(t, w.Close())
	line, err := bufio.NewReaderSize(r, 16).ReadSlice('D')
	if err != nil || string(line) != "KIND" {
		t.Errorf("%q, %v", line, err)
	}
	ok(t, r.Close())
	said, err := io.ReadAll(errs)
	ok(t, err)
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "broken pipe") || len(said) > 0 {
		t.Errorf("%v, stderr %q", err, said)
	}
}

// Ctrl-C ends a command that waits for the answer to its question.
func TestInterruptedQuestion(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	many(t, s.Client(t), 1)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = terminal.Close() }()
	c, errs := program(t, terminal, nil, "revoke", "-redis", s.Addr(), "account:0000")
	question, err := errs.ReadString('?')
	if ok(t, err); question != "Revoke it?" {
		t.Errorf("asks %q", question)
	}
	ok(t, c.Process.Signal(os.Interrupt))
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "interrupt") {
		t.Errorf("revoke: %v", err)
	}
}
