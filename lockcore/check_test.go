package lockcore_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A sound server: what the healthy test has, and others spoil.
var sound = []string{"--appendonly", "yes", "--appendfsync", "always"}

// examine checks and sees to it that nothing without a TTL of at most a minute is left behind.
func examine(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) []lockcore.Finding {
	t.Helper()
	findings, err := lockcore.Check(t.Context(), rdb, o)
	ok(t, err)
	for _, f := range findings {
		if f.Seen == "" || f.Consequence == "" || f.Remedy == "" || f.Code == "" || f.Severity == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
	return findings
}

// find returns the finding of a code.
func find(findings []lockcore.Finding, code lockcore.Code) (lockcore.Finding, bool) {
	i := slices.IndexFunc(findings, func(f lockcore.Finding) bool { return f.Code == code })
	if i < 0 {
		return lockcore.Finding{}, false
	}
	return findings[i], true
}

// want says that there is a finding of a code, how bad it is, and a part of what was seen.
func want(t *testing.T, findings []lockcore.Finding, code lockcore.Code, s lockcore.Severity, seen string) {
	t.Helper()
	if f, found := find(findings, code); !found || f.Severity != s || !strings.Contains(f.Seen, seen) {
		t.Errorf("%s: %+v, want a %s that says %q; all:\n%v", code, f, s, seen, findings)
	}
}

// A sound server has no problem and no warning but the number of its version, and keeps nothing of the check; one server, a Cluster, a
// failover client's shape and a wrapper, whatever the prefix.
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
				late := f.Code == lockcore.CodeLatency || f.Code == lockcore.CodeClockDrift // a machine that is busy with other tests
				if f.Severity != lockcore.SeverityNote && f.Code != lockcore.CodeLua && !late {
					t.Error(f)
				}
			}
			want(t, findings, lockcore.CodeServer, lockcore.SeverityNote, " round trips: ")
			if n := rdb.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys left", n)
			}
		})
	}
}

// What is configured badly is found, and how bad it is.
func TestCheckConfig(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	for _, c := range []struct {
		name, args string
		code       lockcore.Code
		severity   lockcore.Severity
		seen       string
	}{
		{"evicts", "--maxmemory 100mb --maxmemory-policy allkeys-lru", lockcore.CodeEviction, lockcore.SeverityProblem, "allkeys-lru"},
		{"would evict", "--maxmemory-policy volatile-ttl", lockcore.CodeEviction, lockcore.SeverityWarning, "without a maxmemory"},
		{"full", "--maxmemory 1kb", lockcore.CodeMemory, lockcore.SeverityProblem, "of 1024 bytes"},
		{"nothing on disk", "--appendonly no", lockcore.CodePersistence, lockcore.SeverityWarning, "neither"},
		{"snapshots", "--appendonly no --save 60 1", lockcore.CodePersistence, lockcore.SeverityWarning, `"60 1"`},
		{"everysec", "--appendfsync everysec", lockcore.CodePersistence, lockcore.SeverityNote, "everysec"},
		{"no fsync", "--appendfsync no", lockcore.CodePersistence, lockcore.SeverityWarning, "appendfsync no"},
		{"too few replicas", "--min-replicas-to-write 1", lockcore.CodeMinReplicas, lockcore.SeverityProblem, "0 replicas keep up"},
		{"idle", "--timeout 60", lockcore.CodeIdleTimeout, lockcore.SeverityNote, "60 s"},
		{"dead peers", "--tcp-keepalive 0", lockcore.CodeKeepalive, lockcore.SeverityWarning, "is 0"},
		{"tiny buffer", "--client-output-buffer-limit pubsub 1kb 1kb 1", lockcore.CodePubSubBuffer, lockcore.SeverityWarning, "1024 bytes"},
		{"never busy", "--lua-time-limit 0", lockcore.CodeReplyThreshold, lockcore.SeverityNote, "is 0"},
		{"late busy", "--lua-time-limit 60000", lockcore.CodeReplyThreshold, lockcore.SeverityNote, "longer than the lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append(slices.Clone(sound), strings.Fields(c.args)...)
			findings := examine(t, redistest.Real(t, args...).Client(t), lockcore.Options{})
			want(t, findings, c.code, c.severity, c.seen)
			for _, f := range findings { // and nothing else that is as bad
				if f.Severity == lockcore.SeverityProblem && f.Code != c.code && f.Code != lockcore.CodeLatency && f.Code != lockcore.CodeClockDrift {
					t.Errorf("also %v", f)
				}
			}
		})
	}
}

// Check refuses what New refuses, says ErrUnavailable where there is no server or no way in, and keeps to ctx.
func TestCheckErrors(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, "--requirepass", "secret")
	if _, err := lockcore.Check(t.Context(), nil, lockcore.Options{}); err == nil {
		t.Error("no client: no error")
	}
	if _, err := lockcore.Check(t.Context(), s.Client(t), lockcore.Options{Prefix: "{}"}); err == nil || errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a bad prefix: %v", err)
	}
	if _, err := lockcore.Check(t.Context(), s.Client(t), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("no password: %v", err)
	}
	wrong := s.Client(t, func(o *redis.Options) { o.Password = "guess" })
	if _, err := lockcore.Check(t.Context(), wrong, lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
	right := func(o *redis.Options) { o.Password = "secret" }
	if _, err := lockcore.Check(t.Context(), s.Client(t, right), lockcore.Options{}); err != nil {
		t.Errorf("the right password: %v", err)
	}
	if _, err := lockcore.Check(t.Context(), clusterClient(t, redistest.Real(t)), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("a cluster's client on one server: %v", err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := lockcore.Check(ctx, s.Client(t, right), lockcore.Options{}); err == nil || err.Error() != "enough" {
		t.Errorf("ctx: %v", err)
	}
	if _, err := lockcore.Check(t.Context(), wrapper{s.Client(t, right)}, lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("a silent server behind a wrapper: %v", err)
	}
	s.Stop()
	if _, err := lockcore.Check(t.Context(), s.Client(t, right), lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// slowConn holds every answer up.
type slowConn struct {
	net.Conn
	by time.Duration
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.by)
	return n, err
}

// slowly is an edit of a client's options.
func slowly(by time.Duration) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return slowConn{c, by}, err
		}
	}
}

// Slow answers are a warning beyond a hundredth of the lease and a problem beyond a tenth; so is what the slow log remembers.
func TestCheckSlow(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	lease := func(d time.Duration) lockcore.Options { return lockcore.Options{Terms: lockcore.Terms{Lease: d}} }
	want(t, examine(t, s.Client(t, slowly(20*time.Millisecond)), lease(1500*time.Millisecond)), lockcore.CodeLatency, lockcore.SeverityWarning, "the lease is 1.5s")
	want(t, examine(t, s.Client(t, slowly(120*time.Millisecond)), lease(time.Second)), lockcore.CodeLatency, lockcore.SeverityProblem, "the lease is 1s")
	if f, found := find(examine(t, s.Client(t, slowly(20*time.Millisecond)), lease(time.Hour)), lockcore.CodeLatency); found {
		t.Errorf("for an hour's lease: %v", f)
	}
	ok(t, s.Client(t).Do(t.Context(), "DEBUG", "SLEEP", "0.1").Err())
	want(t, examine(t, s.Client(t), lease(time.Second)), lockcore.CodeSlowCommands, lockcore.SeverityWarning, "DEBUG")
	if f, found := find(examine(t, s.Client(t), lease(time.Hour)), lockcore.CodeSlowCommands); found {
		t.Errorf("for an hour's lease: %v", f)
	}
}

// A server that somebody's script blocks is a finding, not an error.
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
	want(t, findings, lockcore.CodeBusy, lockcore.SeverityProblem, "BUSY")
	if len(findings) != 1 {
		t.Errorf("%v", findings)
	}
	ok(t, rdb.ScriptKill(ctx).Err())
	if err := <-blocked; err == nil {
		t.Error("the endless script has ended")
	}
}
