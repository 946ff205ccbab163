package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var update = flag.Bool("update", false, "write testdata anew")

// asCommand is an environment variable that makes the test binary run as the command.
const asCommand = "HOLDFAST_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		Main(nil)
	}
	redis.SetLogger(silent{}) // these tests use wrong addresses, and go-redis would log them
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// call is one call of the command.
type call struct {
	env      map[string]string
	answer   string // typed at the terminal, if terminal is true
	terminal bool
}

func (c call) run(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	sh := &shell{in: strings.NewReader(c.answer), out: &o, err: &e, terminal: c.terminal, getenv: func(name string) string { return c.env[name] }}
	code = sh.run(t.Context(), args)
	return code, o.String(), e.String()
}

// golden compares a text with a file of testdata. It replaces the parts that differ from run to
// run.
func golden(t *testing.T, name, got, addr string) {
	t.Helper()
	host, err := os.Hostname()
	ok(t, err)
	got = strings.ReplaceAll(got, addr, "ADDR")
	got = regexp.MustCompile(regexp.QuoteMeta(host)+`/\d+`).ReplaceAllString(got, "HOST/PID")
	got = regexp.MustCompile(`(locker +)[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\b`).ReplaceAllString(got, "${1}UUID")
	got = regexp.MustCompile(`\b(\d+h)?(\d+m)?[\d.]+(µs|ms|s)\b|\b\d+h\d+m`).ReplaceAllString(got, "TIME")
	got = regexp.MustCompile(`clock [+-][\d.]+ ms to [\d.]+ ms`).ReplaceAllString(got, "clock OFFSET")
	got = regexp.MustCompile(`(token +)\d+`).ReplaceAllString(got, "${1}TOKEN")
	got = regexp.MustCompile(`(Redis|Valkey) \d+\.\d+\.\d+, standalone;`).ReplaceAllString(got, "Redis VERSION, standalone;")
	got = regexp.MustCompile(`\d+ round trips:`).ReplaceAllString(got, "N round trips:") // fewer if they are slow
	got = regexp.MustCompile(`(?m) +$`).ReplaceAllString(regexp.MustCompile(`  +`).ReplaceAllString(got, "  "), "")
	file := filepath.Join("testdata", name)
	if *update {
		ok(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	ok(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// locker returns a Locker that is closed at the end of the test with its keys still held.
func locker(t *testing.T, rdb redis.UniversalClient, prefix string) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.New(rdb, lockcore.Options{Prefix: prefix})
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// furnish creates a key of each state, and returns the lease of account:42.
func furnish(t *testing.T, l *lockcore.Locker) *lockcore.Lease {
	t.Helper()
	ctx := lockcore.WithTask(t.Context(), "job 7 \x1b[31m")
	held, err := l.Acquire(ctx, "account:42", lockcore.Terms{})
	ok(t, err)
	_, err = l.Acquire(ctx, "odd \x1b[31m{key}", lockcore.Terms{})
	ok(t, err)
	done, _, err := l.Claim(ctx, "payment:7", lockcore.Claim{})
	ok(t, err)
	record, err := idempotency.Content{Ending: idempotency.Done, Codec: "json", Data: []byte(`"receipt \u001b[31m7"`)}.Encode()
	ok(t, err)
	ok(t, done.Complete(ctx, record, time.Hour))
	for key, r := range map[string]idempotency.Content{
		"payment:5": {Ending: idempotency.Failed, Data: []byte("no such account \x1b[31m\u009b")}, "payment:6": {Ending: idempotency.NotKept},
	} {
		l, _, err := l.Claim(ctx, key, lockcore.Claim{})
		ok(t, err)
		record, err := r.Encode()
		ok(t, err)
		ok(t, l.Complete(ctx, record, time.Hour))
	}
	left, _, err := l.Claim(ctx, "payment:8", lockcore.Claim{})
	ok(t, err)
	ok(t, left.Abandon(ctx))
	return held
}

// printed has the files of testdata, and the arguments of the command that prints each.
var printed = map[string][]string{
	"ls.txt":             {"ls"},
	"ls_match.txt":       {"ls", "-match", "account:*"},
	"ls_once.txt":        {"ls", "-once"},
	"show_held.txt":      {"show", "account:42"},
	"show_done.txt":      {"show", "-once", "payment:7"},
	"show_abandoned.txt": {"show", "-once", "payment:8"},
	"show_failed.txt":    {"show", "payment:5"},
	"show_result.txt":    {"show", "-result", "payment:7"},
}

// On a server and on a Cluster, ls and show print held, done and abandoned keys, without escape
// sequences for a terminal.
func TestKeys(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t) // for another prefix
	t.Parallel()
	for name, cluster := range map[string]bool{"single": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, flags := redistest.Real(t), []string(nil)
			var rdb redis.UniversalClient
			if cluster {
				s = clusterNode(t)
				c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
				t.Cleanup(func() { _ = c.Close() })
				rdb, flags = c, []string{"-cluster"}
			} else {
				rdb = s.Client(t)
			}
			furnish(t, locker(t, rdb, "pay"))
			flags = append(flags, "-redis", s.Addr(), "-prefix", "pay")
			for file, args := range printed {
				all := append(append([]string{args[0]}, flags...), args[1:]...)
				code, out, errs := call{}.run(t, all...)
				if code != exitOK || errs != "" || strings.Contains(out, "\x1b") {
					t.Errorf("%q: %d %q", args, code, errs)
				}
				golden(t, file, out, s.Addr())
			}
			if _, out, errs := (call{}).run(t, append([]string{"ls"}, append(flags, "-max", "2")...)...); strings.Count(out, "\n") != 3 || !strings.Contains(errs, "more than 2") {
				t.Errorf("%q %q", out, errs)
			}
			code, _, errs := call{}.run(t, append([]string{"show"}, append(flags, "-exclusive", "payment:7")...)...)
			if code != exitProblem || !strings.Contains(errs, "is free") {
				t.Errorf("%d %q", code, errs)
			}
		})
	}
}

// revoke prints the holder and asks for confirmation. After that the ctx of the holder ends with
// ErrRevoked.
func TestRevoke(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	held := furnish(t, locker(t, s.Client(t), ""))
	args := []string{"revoke", "-redis", s.Addr(), "account:42"}
	if code, _, errs := (call{}).run(t, args...); code != exitFailed || !strings.Contains(errs, "stdin is not a terminal: pass -yes") {
		t.Errorf("without a terminal: %d %q", code, errs)
	}
	if code, _, errs := (call{terminal: true, answer: "y\n"}).run(t, args...); code != exitFailed || !strings.Contains(errs, "not revoked") {
		t.Errorf("without a clear yes: %d %q", code, errs)
	}
	if held.Context().Err() != nil {
		t.Fatal("the lease was revoked")
	}
	code, out, errs := call{terminal: true, answer: "yes\n"}.run(t, args...)
	if code != exitOK || errs != "Revoke it? (yes/no) " {
		t.Errorf("%d %q", code, errs)
	}
	golden(t, "revoke.txt", out, s.Addr())
	if _, out, _ := (call{}).run(t, "show", "-redis", s.Addr(), "account:42"); !strings.Contains(out, "held, revoked") {
		t.Errorf("%q", out)
	}
	<-held.Context().Done() // at its next renewal at the latest
	if err := context.Cause(held.Context()); !errors.Is(err, lockcore.ErrRevoked) {
		t.Errorf("ended with %v", err)
	}
}

// revoke refuses a key that is not held. With -yes it does not ask for confirmation.
func TestRevokeNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	furnish(t, locker(t, s.Client(t), ""))
	for _, c := range []struct{ args, want string }{
		{"unused", "free, not held"},
		{"payment:7", "try -once"},
		{"-once payment:7", "done (ok), not held"},
	} {
		code, _, errs := call{}.run(t, append([]string{"revoke", "-redis", s.Addr(), "-yes"}, strings.Fields(c.args)...)...)
		if code != exitProblem || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %q", c.args, code, errs)
		}
	}
	if code, out, errs := (call{}).run(t, "revoke", "-redis", s.Addr(), "-yes", "account:42"); code != exitOK || !strings.Contains(out, "revoked\n") {
		t.Errorf("%d %q", code, errs)
	}
}

// The command doctor prints its findings. It exits with exitProblem only for a problem, or with
// -strict also for a warning.
func TestDoctor(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	args := []string{"doctor", "-redis", s.Addr(), "-lease", "10m"} // no reply is slow relative to this lease
	code, out, errs := call{}.run(t, args...)
	if code != exitOK || errs != "" {
		t.Errorf("%d %q %s", code, errs, out)
	}
	out = regexp.MustCompile(`(?s)warning lua-cve.*?\n\n`).ReplaceAllString(out, "") // depends on the version of the server
	golden(t, "doctor.txt", regexp.MustCompile(`warnings: \d`).ReplaceAllString(out, "warnings: N"), s.Addr())
	if code, _, _ := (call{}).run(t, append(args, "-strict")...); code != exitProblem {
		t.Errorf("-strict: %d", code)
	}
	ok(t, s.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	ok(t, s.Client(t).ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	code, out, _ = call{}.run(t, append(args, "-json")...)
	var findings []doctor.Finding
	if err := json.Unmarshal([]byte(out), &findings); err != nil || code != exitProblem || findings[0].Code != "eviction" {
		t.Errorf("%d %v %s", code, err, out)
	}
}
