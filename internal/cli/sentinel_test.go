package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// The command finds the primary through Sentinels. Each mistake on the way there has a separate
// message and exits with exitFailed, and doctor does not report it as a finding.
func TestSentinel(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	trio, plain := redistest.Sentinel(t), redistest.Real(t)
	o := trio.Options()
	sentinels := strings.Join(o.SentinelAddrs, ",")
	for _, command := range []string{"doctor", "ls"} {
		code, out, errs := call{env: map[string]string{"REDIS_ADDR": "elsewhere"}}.run(t, command, "-sentinel", sentinels, "-master", o.MasterName)
		if code == exitFailed || command == "doctor" && !strings.Contains(out, "note failover\n") {
			t.Errorf("%s: %d %s %s", command, code, out, errs)
		}
		for _, c := range []struct{ at, want string }{
			{"127.0.0.1:1", "No Sentinel replies there"},
			{"127.0.0.1:1,127.0.0.1:2", "No Sentinel replies there"},
			{sentinels, "do not know a master of that name"},
			{sentinels + ",127.0.0.1:1", "do not know a master of that name"},
			{plain.Addr(), "That is no Sentinel: use -redis"},
			{plain.Addr() + ",127.0.0.1:1", "That is no Sentinel: use -redis"},
		} {
			code, out, errs := call{}.run(t, command, "-sentinel", c.at, "-master", "nobody")
			if code != exitFailed || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, ": :") || strings.Contains(errs, `\n`) {
				t.Errorf("%s -sentinel %s: %d, want %q in %q; %s", command, c.at, code, c.want, errs, out)
			}
		}
	}
}

// A hint fits the source of the error and the flags of the caller. An unknown error has no hint.
func TestHints(t *testing.T) {
	t.Parallel()
	const none = "redis: all sentinels specified in configuration are unreachable: "
	watched := target{sentinel: "a:1", master: "m", from: "-redis"}
	for _, c := range []struct {
		t          target
		text, want string
	}{
		{watched, none + "NOAUTH Authentication required.", "HOLDFAST_SENTINEL_PASSWORD"},
		{watched, none + "WRONGPASS invalid", "HOLDFAST_SENTINEL_PASSWORD"},
		{watched, none + "NOPERM this user", "+sentinel"},
		{watched, none + "dial tcp: lookup a: no such host", "No Sentinel replies there"},
		{watched, none + "dial tcp 10.0.0.1:1: i/o timeout", "No Sentinel replies there"},
		{watched, none + "tls: first record does not look like a TLS handshake", "does not use TLS"},
		{watched, "WRONGPASS invalid", "HOLDFAST_REDIS_PASSWORD"},
		{watched, "context deadline exceeded", "is -sentinel right"},
		{watched, "dial tcp 10.0.0.1:1: connect: connection refused", "the Sentinels return"},
		{target{from: "REDIS_ADDR"}, "dial tcp: lookup a: no such host", "is REDIS_ADDR right"},
		{target{}, "NOPERM this user", "https://github.com/holdfast-go/holdfast/blob/main/docs/operate.md#rights"},
		{target{}, "ERR ACL failure in script: User job has no permissions to run the 'hget' command", "docs/operate.md#rights"},
		{target{}, "ERR The user executing the script can't run this command or subcommand", "docs/operate.md#rights"},
		{target{}, "remote error: tls: handshake failure", "-cert FILE"},
		{target{}, "x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs", "the name that is in the certificate"},
		{target{}, "x509: certificate is valid for a, not b", "the name that is in the certificate"},
		{target{}, "x509: certificate is not valid for any names, but wanted to match b", "the name that is in the certificate"},
		{target{}, "not done within 1s; a longer -timeout helps", ""},
	} {
		var h hintedError
		if err := errors.New(c.text); !errors.Is(c.t.explain(err), err) || errors.As(c.t.explain(err), &h) != (c.want != "") || !strings.Contains(h.say, c.want) {
			t.Errorf("%s: %q, want %q", c.text, h.say, c.want)
		}
	}
}
