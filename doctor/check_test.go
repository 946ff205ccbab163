package doctor_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// sound are the settings of a server without problems.
var sound = []string{"--appendonly", "yes", "--appendfsync", "always"}

// examine runs Check. It fails t if a finding lacks a field. Check bounds its calls to a second, so
// examine repeats a Check that a pause of the machine left without a reply, at most twice.
func examine(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) []doctor.Finding {
	t.Helper()
	findings, err := doctor.Check(t.Context(), rdb, o)
	for try := 0; try < 2 && noReply(findings, err); try++ {
		findings, err = doctor.Check(t.Context(), rdb, o)
	}
	ok(t, err)
	for _, f := range findings {
		if f.Seen == "" || f.Consequence == "" || f.Remedy == "" || f.Code == "" || f.Severity == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
	return findings
}

// noReply reports whether a call of Check got no reply in time.
func noReply(findings []doctor.Finding, err error) bool {
	late := context.DeadlineExceeded.Error()
	return errors.Is(err, context.DeadlineExceeded) || slices.ContainsFunc(findings, func(f doctor.Finding) bool {
		return strings.Contains(f.Seen, late)
	})
}

// find returns the first finding with a code.
func find(findings []doctor.Finding, code doctor.Code) (doctor.Finding, bool) {
	i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Code == code })
	if i < 0 {
		return doctor.Finding{}, false
	}
	return findings[i], true
}

// want fails t without a finding that has this code and severity, and seen in its Seen.
func want(t *testing.T, findings []doctor.Finding, code doctor.Code, s doctor.Severity, seen string) {
	t.Helper()
	if f, found := find(findings, code); !found || f.Severity != s || !strings.Contains(f.Seen, seen) {
		t.Errorf("%s: %+v, want a %s that says %q; all:\n%v", code, f, s, seen, findings)
	}
}

// A sound server causes no problem, and no warning but that about its version number. Check leaves
// no key there: behind a client for one server, a ClusterClient and a wrapper, also with a prefix
// that has glob characters.
// Shows: D1
func TestCheckSound(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":  func(t *testing.T) redis.UniversalClient { return redistest.Real(t, sound...).Client(t) },
		"wrapper": func(t *testing.T) redis.UniversalClient { return wrapper{redistest.Real(t, sound...).Client(t)} },
		"cluster": func(t *testing.T) redis.UniversalClient { return clusterClient(t, clusterNode(t, sound...)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := client(t)
			findings := examine(t, rdb, lockcore.Options{Prefix: "a*[b]?"})
			for _, f := range findings {
				late := f.Code == doctor.CodeLatency || f.Code == doctor.CodeClockDrift // other tests load the machine
				if f.Severity != doctor.SeverityNote && f.Code != doctor.CodeLua && !late {
					t.Error(f)
				}
			}
			want(t, findings, doctor.CodeServer, doctor.SeverityNote, " round trips: ")
			if n := rdb.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys left", n)
			}
		})
	}
}

// Each bad setting causes a finding with its severity.
func TestCheckConfig(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for _, c := range []struct {
		name, args string
		code       doctor.Code
		severity   doctor.Severity
		seen       string
	}{
		{"evicts", "--maxmemory 100mb --maxmemory-policy allkeys-lru", doctor.CodeEviction, doctor.SeverityProblem, "allkeys-lru"},
		{"would evict", "--maxmemory-policy volatile-ttl", doctor.CodeEviction, doctor.SeverityWarning, "without a maxmemory"},
		{"full", "--maxmemory 1kb", doctor.CodeMemory, doctor.SeverityProblem, "of 1024 bytes"},
		{"nothing on disk", "--appendonly no", doctor.CodePersistence, doctor.SeverityWarning, "neither"},
		{"snapshots", "--appendonly no --save 60 1", doctor.CodePersistence, doctor.SeverityWarning, `"60 1"`},
		{"everysec", "--appendfsync everysec", doctor.CodePersistence, doctor.SeverityNote, "everysec"},
		{"no fsync", "--appendfsync no", doctor.CodePersistence, doctor.SeverityWarning, "appendfsync no"},
		{"too few replicas", "--min-replicas-to-write 1", doctor.CodeMinReplicas, doctor.SeverityProblem, "0 replicas keep up"},
		{"idle", "--timeout 60", doctor.CodeIdleTimeout, doctor.SeverityNote, "60 s"},
		{"dead peers", "--tcp-keepalive 0", doctor.CodeKeepalive, doctor.SeverityWarning, "is 0"},
		{"tiny buffer", "--client-output-buffer-limit pubsub 1kb 1kb 1", doctor.CodePubSubBuffer, doctor.SeverityWarning, "1024 bytes"},
		{"never busy", "--lua-time-limit 0", doctor.CodeReplyThreshold, doctor.SeverityNote, "is 0"},
		{"late busy", "--lua-time-limit 60000", doctor.CodeReplyThreshold, doctor.SeverityNote, "longer than the lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append(slices.Clone(sound), strings.Fields(c.args)...)
			findings := examine(t, redistest.Real(t, args...).Client(t), lockcore.Options{})
			want(t, findings, c.code, c.severity, c.seen)
			for _, f := range findings { // no other finding is a problem
				if f.Severity == doctor.SeverityProblem && f.Code != c.code && f.Code != doctor.CodeLatency && f.Code != doctor.CodeClockDrift {
					t.Errorf("also %v", f)
				}
			}
		})
	}
}

// Check refuses what New refuses, and returns ErrUnavailable without a server or without a login.
// It ends with ctx.
func TestCheckErrors(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, "--requirepass", "secret")
	if _, err := doctor.Check(t.Context(), nil, lockcore.Options{}); err == nil {
		t.Error("no client: no error")
	}
	if _, err := doctor.Check(t.Context(), s.Client(t), lockcore.Options{Prefix: "{}"}); err == nil || errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := doctor.Check(t.Context(), s.Client(t), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("no password: %v", err)
	}
	wrong := s.Client(t, func(o *redis.Options) { o.Password = "guess" })
	if _, err := doctor.Check(t.Context(), wrong, lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
	right := func(o *redis.Options) { o.Password = "secret" }
	if _, err := doctor.Check(t.Context(), s.Client(t, right), lockcore.Options{}); err != nil {
		t.Errorf("the right password: %v", err)
	}
	if _, err := doctor.Check(t.Context(), clusterClient(t, redistest.Real(t)), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("a cluster's client on one server: %v", err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := doctor.Check(ctx, s.Client(t, right), lockcore.Options{}); err == nil || err.Error() != "enough" {
		t.Errorf("ctx: %v", err)
	}
	if _, err := doctor.Check(t.Context(), wrapper{s.Client(t, right)}, lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a silent server behind a wrapper: %v", err)
	}
	s.Stop()
	if _, err := doctor.Check(t.Context(), s.Client(t, right), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// slowConn delays every reply.
type slowConn struct {
	net.Conn
	by time.Duration
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.by)
	return n, err
}

// slowly delays the replies to a client.
func slowly(by time.Duration) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return slowConn{c, by}, err
		}
	}
}

// Replies slower than a hundredth of the lease are a warning, and slower than a tenth a problem. An
// entry of the slow log is a warning.
func TestCheckSlow(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	lease := func(d time.Duration) lockcore.Options { return lockcore.Options{Terms: lockcore.Terms{Lease: d}} }
	warned := func() []doctor.Finding {
		return examine(t, s.Client(t, slowly(20*time.Millisecond)), lease(1500*time.Millisecond))
	}
	findings := warned()
	for range 3 { // a pause of the machine turns the warning into a problem
		if f, found := find(findings, doctor.CodeLatency); !found || f.Severity != doctor.SeverityProblem {
			break
		}
		findings = warned()
	}
	want(t, findings, doctor.CodeLatency, doctor.SeverityWarning, "the lease is 1.5s")
	want(t, examine(t, s.Client(t, slowly(120*time.Millisecond)), lease(time.Second)), doctor.CodeLatency, doctor.SeverityProblem, "the lease is 1s")
	if f, found := find(examine(t, s.Client(t, slowly(20*time.Millisecond)), lease(time.Hour)), doctor.CodeLatency); found {
		t.Errorf("for a lease of an hour: %v", f)
	}
	ok(t, s.Client(t).Do(t.Context(), "DEBUG", "SLEEP", "0.1").Err())
	want(t, examine(t, s.Client(t), lease(time.Second)), doctor.CodeSlowCommands, doctor.SeverityWarning, "DEBUG")
	if f, found := find(examine(t, s.Client(t), lease(time.Hour)), doctor.CodeSlowCommands); found {
		t.Errorf("for a lease of an hour: %v", f)
	}
}

// A server that a script of another program blocks is a finding, not an error.
func TestCheckBusy(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, "--lua-time-limit", "20")
	ctx, rdb := t.Context(), s.Client(t)
	blocked := make(chan error, 1)
	go func() {
		blocked <- s.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 }).Eval(ctx, "while true do end", nil).Err()
	}()
	for !redis.HasErrorPrefix(rdb.Time(ctx).Err(), "BUSY") {
	}
	findings := examine(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), lockcore.Options{})
	want(t, findings, doctor.CodeBusy, doctor.SeverityProblem, "BUSY")
	if len(findings) != 1 {
		t.Errorf("%v", findings)
	}
	ok(t, rdb.ScriptKill(ctx).Err())
	if err := <-blocked; err == nil {
		t.Error("the endless script has ended")
	}
}
