package cli

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// died acquires an exclusive key and waits until its lease has expired without a release.
func died(t *testing.T, s *redistest.Server, key string) {
	t.Helper()
	l := locker(t, s.Client(t), "")
	_, err := l.AcquireFixed(t.Context(), key, lockcore.Terms{Wait: time.Minute, Lease: time.Second})
	ok(t, err)
	for {
		h, err := l.Inspect(t.Context(), event.KindExclusive, key)
		if ok(t, err); h.State == lockcore.StateFree {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// show prints that an exclusive key whose holder died is free. ls lists that key only with -all.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	died(t, s, "account:1")
	h, err := locker(t, s.Client(t), "").Inspect(t.Context(), event.KindExclusive, "account:1")
	if err != nil || h.State != lockcore.StateFree || !h.NotReleased || h.Holder.Host == "" {
		t.Errorf("Inspect: %+v, %v", h, err)
	}
	if code, out, errs := (call{}).run(t, "ls", "-redis", s.Addr()); code != exitOK || out != "" || !strings.Contains(errs, "no keys") {
		t.Errorf("ls: %d %q %q", code, out, errs)
	}
	if code, out, _ := (call{}).run(t, "ls", "-redis", s.Addr(), "-all"); code != exitOK || !strings.Contains(out, "free (last hold was not released") || strings.Contains(out, "23h") {
		t.Errorf("ls -all: %d %q", code, out)
	}
	if code, out, errs := (call{}).run(t, "show", "-redis", s.Addr(), "account:1"); code != exitProblem || !strings.Contains(out, "free (last hold was not released") || !strings.Contains(errs, "is free") {
		t.Errorf("show: %d %q %q", code, out, errs)
	}
}

// ls lists a key whose rate is in use, which has no hash, and a paused one whose holder died.
func TestThrottledAndPaused(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	ok(t, l.Spend(t.Context(), "calls:acme", lockcore.Rate{N: 1, Per: time.Hour}))
	died(t, s, "account:1")
	ok(t, l.Pause(t.Context(), "account:1", time.Hour, "r"))
	for _, want := range []string{"free, rate in use +calls:acme ", `free \(last hold was not released; it began [\d.]+s ago\), paused +account:1 `} {
		if code, out, errs := (call{}).run(t, "ls", "-redis", s.Addr()); code != exitOK || errs != "" || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ls: %d %q %q, want %s", code, out, errs, want)
		}
	}
	code, out, errs := call{}.run(t, "show", "-redis", s.Addr(), "account:1")
	if code != exitOK || errs != "" || !strings.Contains(out, "paused for") {
		t.Errorf("show: %d %q %q", code, out, errs)
	}
}

// show names the Locker of the holder, in text and in JSON. A hold that has ended has none.
func TestShowLocker(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	furnish(t, l)
	for key, want := range map[string]string{"account:42": l.ID(), "payment:7": "", "payment:8": ""} {
		_, out, _ := call{}.run(t, "show", "-redis", s.Addr(), key)
		if strings.Contains(out, "\nlocker ") != (want != "") || !strings.Contains(out, want) {
			t.Errorf("%s: show %q, want locker %q", key, out, want)
		}
		_, out, _ = call{}.run(t, "show", "-json", "-redis", s.Addr(), key)
		var k keys
		ok(t, json.Unmarshal([]byte(out), &k))
		if len(k.Keys) != 1 || k.Keys[0].Holder == nil || k.Keys[0].Holder.Locker != want {
			t.Errorf("%s: show -json %s, want locker %q", key, out, want)
		}
	}
}

// ls, show and -json print how the run of a done key ended. -result prints its record.
func TestResults(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	furnish(t, locker(t, s.Client(t), ""))
	_, list, _ := call{}.run(t, "ls", "-redis", s.Addr())
	for _, c := range []struct{ key, state, outcome string }{
		{"payment:7", "done (ok)", "ok"},
		{"payment:5", `done (failed: "no such account \x1b[31m\u009b")`, "failed"},
		{"payment:6", "done (result not kept)", "not_kept"},
	} {
		_, out, _ := call{}.run(t, "show", "-redis", s.Addr(), c.key)
		if !strings.Contains(out, c.state) || !strings.Contains(list, c.state) {
			t.Errorf("%s: show %q, ls %q", c.key, out, list)
		}
		var k keys
		_, out, _ = call{}.run(t, "show", "-json", "-redis", s.Addr(), c.key)
		ok(t, json.Unmarshal([]byte(out), &k))
		if len(k.Keys) != 1 || k.Keys[0].Result == nil || k.Keys[0].Result.Outcome != c.outcome || k.Keys[0].Result.Text != "" {
			t.Errorf("%s: %s", c.key, out)
		}
	}
	_, out, _ := call{}.run(t, "show", "-json", "-result", "-redis", s.Addr(), "payment:7")
	var k keys
	ok(t, json.Unmarshal([]byte(out), &k))
	if k.Keys[0].Result.Text != `"receipt \u001b[31m7"` || k.Keys[0].Result.Codec != "json" {
		t.Errorf("-result: %s", out)
	}
}

// The commands name each share of a key. Revoking ends all of them, and clear refuses the key.
func TestShares(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	for _, limit := range []lockcore.Limit{{N: 5, Weight: 3}, {N: lockcore.Unlimited}} {
		_, err := l.AcquireShare(t.Context(), "partner:x", limit, lockcore.Terms{})
		ok(t, err)
	}
	_, err := l.AcquireShare(t.Context(), "partner:y", lockcore.Limit{N: 3, Weight: 2}, lockcore.Terms{})
	ok(t, err)
	for args, want := range map[string][]string{
		"ls":                    {"shared (weight 4)", "shared (weight 2 of 3)"},
		"ls -json":              {`"weights": 4`, `"shares": [`},
		"show":                  {"shared (weight 4)", "weight 3 of 5"},
		"clear -exclusive -yes": {"partner:x is shared, see holdfast revoke: not cleared"},
		"revoke -yes":           {"revoking it ends all its shares, of weight 4 together", "revoked"},
		"show -json":            {`"weight": 3`, `"limit": 5`},
		"revoke -yes -once":     {"nothing to revoke"},
	} {
		line := append(strings.Fields(args), "-redis", s.Addr())
		if !strings.HasPrefix(args, "ls") {
			line = append(line, "partner:x")
		}
		_, out, errs := call{}.run(t, line...)
		for _, text := range want {
			if !strings.Contains(out+errs, text) && !strings.Contains(strings.ReplaceAll(out, "\n", ""), text) {
				t.Errorf("%s: %q %q, want %q", args, out, errs, text)
			}
		}
	}
}

// clear prints the state of the key, asks for confirmation, and clears it. It frees a cooling
// exclusive key. It does not change a free or held key, and exits with exitProblem.
func TestClear(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	furnish(t, l)
	_, _, err := l.Claim(t.Context(), "payment:9", lockcore.Claim{})
	ok(t, err)
	lease, err := l.Acquire(t.Context(), "account:3", lockcore.Terms{MinHold: time.Hour})
	ok(t, err)
	ok(t, lease.Release(t.Context()))
	if code, _, errs := (call{}).run(t, "revoke", "-redis", s.Addr(), "-yes", "account:3"); code != exitProblem || !strings.Contains(errs, "holdfast clear -exclusive frees it") {
		t.Errorf("revoke: %d %q", code, errs)
	}
	args := func(more ...string) []string { return append([]string{"clear", "-redis", s.Addr()}, more...) }
	for _, c := range []struct {
		call      call
		args      []string
		code      int
		out, errs string
	}{
		{call{}, []string{"payment:8"}, exitFailed, "", "-once or -exclusive is missing"},
		{call{}, []string{"-once", "payment:8"}, exitFailed, "abandoned", "stdin is not a terminal: pass -yes"},
		{call{terminal: true, answer: "no\n"}, []string{"-once", "payment:8"}, exitFailed, "This key is abandoned. Clearing forgets that", "not cleared"},
		{call{terminal: true, answer: "yes\n"}, []string{"-once", "payment:8"}, exitOK, "cleared\n", "Clear it?"},
		{call{}, []string{"-once", "-yes", "payment:8"}, exitProblem, "", "is free: not cleared"},
		{call{terminal: true}, []string{"-once", "payment:7"}, exitFailed, "", "stdin has ended: without a terminal pass -yes"},
		{call{}, []string{"-once", "-yes", "account:3"}, exitProblem, "", "is cooling: try -exclusive"},
		{call{}, []string{"-exclusive", "-yes", "account:3"}, exitOK, "cleared\n", ""},
		{call{}, []string{"-exclusive", "-yes", "account:3"}, exitProblem, "", "is free: not cleared"},
		{call{}, []string{"-once", "-yes", "payment:9"}, exitProblem, "", "is held"},
		{call{}, []string{"-once", "-yes", "-json", "payment:7"}, exitOK, `"action": "cleared"`, "done (ok)"},
	} {
		code, out, errs := c.call.run(t, args(c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%v: %d %q %q", c.args, code, out, errs)
		}
	}
	for _, key := range []string{"payment:7", "payment:8"} {
		if h, err := l.Inspect(t.Context(), event.KindOnce, key); err != nil || h.State != lockcore.StateFree {
			t.Errorf("%s: %v, %v", key, h.State, err)
		}
	}
}

// clear removes a key of either kind whose data does not decode.
func TestClearUnreadable(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	l := locker(t, rdb, "")
	lease, err := l.Acquire(t.Context(), "account:1", lockcore.Terms{})
	ok(t, err)
	ok(t, lease.Release(t.Context()))
	lease, _, err = l.Claim(t.Context(), "payment:1", lockcore.Claim{})
	ok(t, err)
	ok(t, lease.Abandon(t.Context()))
	for kind, key := range map[string]string{"-exclusive": "account:1", "-once": "payment:1"} {
		name := "holdfast:2:" + map[string]string{"-exclusive": "x", "-once": "o"}[kind] + ":{" + key + "}"
		ok(t, rdb.HSet(t.Context(), name, "f", "junk").Err())
		if code, out, errs := (call{}).run(t, "clear", "-redis", s.Addr(), kind, key); code != exitFailed || !strings.Contains(errs, `field "f" of the hash`) {
			t.Errorf("%s: %d %q %q", key, code, out, errs)
		}
		if code, out, errs := (call{}).run(t, "clear", "-redis", s.Addr(), kind, "-yes", key); code != exitOK || out != "cleared\n" {
			t.Errorf("%s: %d %q %q", key, code, out, errs)
		}
	}
	for kind, key := range map[event.Kind]string{event.KindExclusive: "account:1", event.KindOnce: "payment:1"} {
		if h, err := l.Inspect(t.Context(), kind, key); err != nil || h.State != lockcore.StateFree {
			t.Errorf("%s: %v, %v", key, h.State, err)
		}
	}
}

// clear keeps a done key whose queue has another type. It also keeps a key whose unreadable data is
// repaired between the question and the answer.
func TestClearUnreadableKeepsRecords(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	l := locker(t, rdb, "")
	furnish(t, l)
	name := rdb.Keys(t.Context(), "*{payment:7}").Val()[0]
	ok(t, rdb.Set(t.Context(), name+":q", "x", 0).Err())
	if code, out, errs := (call{}).run(t, "clear", "-redis", s.Addr(), "-once", "-yes", "payment:7"); code != exitFailed || !strings.Contains(errs, "WRONGTYPE") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	ok(t, rdb.Del(t.Context(), name+":q").Err())
	ok(t, redistest.Unfold(t.Context(), rdb, name))
	good, err := rdb.HGet(t.Context(), name, "f").Result()
	ok(t, err)
	ok(t, rdb.HSet(t.Context(), name, "f", "junk").Err())
	var out, errs strings.Builder
	in := &terminal{Reader: *strings.NewReader("yes\n"), before: func() { ok(t, rdb.HSet(t.Context(), name, "f", good).Err()) }}
	sh := &shell{in: in, out: &out, err: &errs, terminal: true, getenv: func(string) string { return "" }}
	if code := sh.run(t.Context(), []string{"clear", "-redis", s.Addr(), "-once", "payment:7"}); code != exitProblem || !strings.Contains(errs.String(), "changed") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
	if h, err := l.Inspect(t.Context(), event.KindOnce, "payment:7"); err != nil || h.State != lockcore.StateDone {
		t.Errorf("%v, %v", h.State, err)
	}
}

// terminal calls before when the answer is read for the first time.
type terminal struct {
	before func()
	strings.Reader
}

func (r *terminal) Read(b []byte) (int, error) {
	if r.before != nil {
		r.before()
		r.before = nil
	}
	return r.Reader.Read(b)
}

// A key that runs and completes between the question and the answer is not cleared.
func TestClearIsCompareAndClear(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	furnish(t, l)
	var out, errs strings.Builder
	in := &terminal{Reader: *strings.NewReader("yes\n"), before: func() {
		lease, _, err := l.Claim(t.Context(), "payment:8", lockcore.Claim{})
		ok(t, err)
		record, err := idempotency.Content{Ending: idempotency.NotKept}.Encode()
		ok(t, err)
		ok(t, lease.Complete(t.Context(), record, time.Hour))
	}}
	sh := &shell{in: in, out: &out, err: &errs, terminal: true, getenv: func(string) string { return "" }}
	if code := sh.run(t.Context(), []string{"clear", "-redis", s.Addr(), "-once", "payment:8"}); code != exitProblem || !strings.Contains(errs.String(), "changed") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
	if h, err := l.Inspect(t.Context(), event.KindOnce, "payment:8"); err != nil || h.State != lockcore.StateDone {
		t.Errorf("%v, %v", h.State, err)
	}
}

// The command key prints the key that httpmw uses for a request. The secret comes from a file or
// the environment.
func TestKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef\n"), 0o600))
	want := func(secret string) string {
		o := httpmw.IdempotentOptions{}
		if secret != "" {
			o.Secret = []byte(secret)
		}
		key, err := o.KeyOf("alice", "POST", "/charges", "k-17-abcdefgh")
		ok(t, err)
		return key
	}
	args := []string{"key", "-scope", "alice", "-path", "/charges"}
	env := map[string]string{"HOLDFAST_HTTP_SECRET": "fedcba9876543210fedcba9876543210"}
	for _, c := range []struct {
		call call
		args []string
		want string
	}{
		{call{}, []string{"k-17-abcdefgh"}, want("")},
		{call{env: env}, []string{"k-17-abcdefgh"}, want(env["HOLDFAST_HTTP_SECRET"])},
		{call{env: env}, []string{"-secret-file", file, "k-17-abcdefgh"}, want("0123456789abcdef0123456789abcdef")},
	} {
		if code, out, errs := c.call.run(t, append(slices.Clone(args), c.args...)...); code != exitOK || out != c.want+"\n" {
			t.Errorf("%v: %d %q %q, want %q", c.args, code, out, errs, c.want)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	ok(t, os.WriteFile(empty, []byte("\n"), 0o600))
	if code, out, errs := (call{}).run(t, append(slices.Clone(args), "-secret-file", empty, "k-17-abcdefgh")...); code != exitFailed || out != "" || !strings.Contains(errs, "is empty") {
		t.Errorf("an empty secret: %d %q %q", code, out, errs)
	}
	code, out, _ := call{}.run(t, append(slices.Clone(args), "-json", "k-17-abcdefgh")...)
	var k struct{ Kind, Key string }
	if err := json.Unmarshal([]byte(out), &k); err != nil || code != exitOK || k.Kind != "once" || k.Key != want("") {
		t.Errorf("-json: %d %q", code, out)
	}
}

// A bad argument is an error that names flag, value and bound. The command exits with exitFailed
// before it connects to Redis.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"ls -max 0":               "-max is 0, must be 1 or more",
		"ls -timeout -1s":         "-timeout is -1s, must be more than 0s",
		"ls -timeout x":           `invalid value "x" for flag -timeout`,
		"ls -once -exclusive":     "-once and -exclusive exclude each other",
		"show -once -exclusive k": "-once and -exclusive exclude each other",
		"doctor -lease 1ms":       "-lease is 1ms, must be between 1s and 1h",
		"doctor -replica-acks -1": "-replica-acks is -1, must be 0 or more",
		"wake":                    "KEY is missing",
		"clear k":                 "-once or -exclusive is missing",
		"clear -once":             "KEY is missing",
		"key -path /x k":          "-scope is missing",
		"key -scope a k":          "-path is missing",
		"key -scope a -path x k":  "must begin with /",
		"key -scope a -path /x -method post abcdefgh": "upper case",
		"version x":                             "want only flags",
		"ls -match " + strings.Repeat("k", 513): "-match is 513 bytes long, must be at most 512",
	} {
		if code, out, errs := (call{}).run(t, strings.Fields(args)...); code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, errs, want)
		}
	}
	if code, out, _ := (call{}).run(t, "version"); code != exitOK || !strings.HasPrefix(out, "holdfast ") {
		t.Errorf("version: %d %q", code, out)
	}
	if code, out, _ := (call{}).run(t, "version", "-json"); code != exitOK || !strings.Contains(out, `"version": "`) {
		t.Errorf("version -json: %d %q", code, out)
	}
}

// Names with characters that control a terminal are escaped in every output, also C1 controls,
// bidirectional marks and bytes that are not UTF-8. -json returns them exactly. A client with
// access to Redis can write any bytes as a holder.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	hostile := "a\x1b[2J\u009b31m\u202e\r\n\x7f\xff\U000e0001"
	_, err := l.Acquire(t.Context(), hostile, lockcore.Terms{})
	ok(t, err)
	lease, _, err := l.Claim(t.Context(), hostile, lockcore.Claim{})
	ok(t, err)
	record, err := idempotency.Content{Ending: idempotency.Failed, Data: []byte(hostile)}.Encode()
	ok(t, err)
	ok(t, lease.Complete(t.Context(), record, time.Hour))
	rdb, line := s.Client(t), strings.ReplaceAll(hostile, "\n", "")
	for _, name := range rdb.Keys(t.Context(), "holdfast:2:*").Val() {
		if strings.HasPrefix(name, "holdfast:2:o:") {
			ok(t, redistest.Unfold(t.Context(), rdb, name))
		}
		if rdb.Type(t.Context(), name).Val() == "hash" {
			ok(t, rdb.HSet(t.Context(), name, "m", strings.Join([]string{line, "1", line, line}, "\n"), "o", line).Err())
		}
	}
	for kind, name := range map[event.Kind]string{event.KindExclusive: hostile, event.KindOnce: hostile + "y"} {
		if kind == event.KindOnce {
			_, _, err := l.Claim(t.Context(), name, lockcore.Claim{})
			ok(t, err)
		}
		park(t, l, kind, name, "e/"+hostile+"/"+url.PathEscape(hostile))
	}
	for _, args := range [][]string{
		{"ls"},
		{"ls", "-json"},
		{"show", hostile + "y"},
		{"show", "-json", hostile + "y"},
		{"wake", hostile},
		{"wake", "-json", "-once", hostile + "y"},
		{"wake", "-once", hostile},
		{"show", hostile},
		{"show", "-json", "-result", hostile},
		{"show", "-result", hostile},
		{"revoke", hostile},
		{"revoke", "-yes", "-json", hostile},
		{"clear", "-once", hostile},
		{"show", "-exclusive", hostile + "x"},
		{"revoke", "-once", hostile},
	} {
		_, out, errs := call{}.run(t, slices.Insert(slices.Clone(args), 1, "-redis", s.Addr())...)
		for _, r := range strings.ReplaceAll(out+errs, "\n", "") {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e || r == 0xfffd || r == 0xe0001 {
				t.Errorf("%q prints %U: %q %q", args, r, out, errs)
				break
			}
		}
		if out+errs == "" {
			t.Errorf("%q prints nothing", args)
		}
	}
	_, out, _ := call{}.run(t, "ls", "-json", "-redis", s.Addr())
	var k keys
	ok(t, json.Unmarshal([]byte(out), &k))
	for _, h := range k.Keys {
		if strings.TrimSuffix(string(h.KeyBytes), "y") != hostile {
			t.Errorf("key_base64 is %q", h.KeyBytes)
		}
	}
}

// The exit codes of each command are those in help, and docs/operate.md has each command and each
// field of -json.
func TestDocumentedOutput(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	furnish(t, l)
	park(t, locker(t, s.Client(t), ""), event.KindExclusive, "account:42", "eu/default/7")
	page, err := os.ReadFile("../../docs/operate.md")
	ok(t, err)
	_, help, _ := call{}.run(t, "help")
	for _, command := range []string{"doctor", "ls", "show", "revoke", "clear", "wake", "key", "version"} {
		if !strings.Contains(help, "holdfast "+command) || !strings.Contains(string(page), "`"+command) {
			t.Errorf("%s is not in the help and in docs/operate.md", command)
		}
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"doctor", "-json"}, exitOK},
		{[]string{"ls", "-json"}, exitOK},
		{[]string{"ls", "-json", "-match", "nothing"}, exitOK},
		{[]string{"show", "-json", "account:42"}, exitOK},
		{[]string{"show", "-json", "free"}, exitProblem},
		{[]string{"show", "-redis", "127.0.0.1:1", "k"}, exitFailed},
		{[]string{"revoke", "-json", "-yes", "free"}, exitProblem},
		{[]string{"revoke", "-json", "account:42"}, exitFailed},
		{[]string{"revoke", "-json", "-yes", "account:42"}, exitOK},
		{[]string{"wake", "-json", "account:42"}, exitProblem},
		{[]string{"wake", "-json", "free"}, exitProblem},
		{[]string{"wake", "-redis", "127.0.0.1:1", "k"}, exitFailed},
		{[]string{"clear", "-json", "-once", "-yes", "free"}, exitProblem},
		{[]string{"clear", "-json", "-once", "-yes", "payment:7"}, exitOK},
	} {
		args := slices.Clone(c.args)
		if !slices.Contains(args, "-redis") {
			args = slices.Insert(args, 1, "-redis", s.Addr())
		}
		code, out, errs := call{}.run(t, args...)
		if code != c.code {
			t.Errorf("%v: %d, want %d; %q", c.args, code, c.code, errs)
		}
		if !slices.Contains(args, "-json") || c.code == exitFailed {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("%v: %v: %q", c.args, err, out)
		}
		for _, field := range slices.Sorted(maps.Keys(fields(v, map[string]bool{}))) {
			if !strings.Contains(string(page), "`"+field+"`") && !strings.Contains(string(page), `"`+field+`": `) {
				t.Errorf("%v prints %s, which docs/operate.md does not show", c.args, field)
			}
		}
	}
}

// fields returns the names of all fields of a JSON value.
func fields(v any, found map[string]bool) map[string]bool {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			found[name] = true
			fields(x, found)
		}
	case []any:
		for _, x := range v {
			fields(x, found)
		}
	}
	return found
}
