package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/pipe"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// examineAll runs CheckQuorum as examine runs Check.
func examineAll(t *testing.T, o lockcore.Options, masters ...*redis.Client) []doctor.Finding {
	t.Helper()
	findings, err := doctor.CheckQuorum(t.Context(), masters, o)
	for try := 0; try < 2 && noReply(findings, err); try++ {
		findings, err = doctor.CheckQuorum(t.Context(), masters, o)
	}
	ok(t, err)
	for _, f := range findings {
		if f.Seen == "" || f.Consequence == "" || f.Remedy == "" || f.Code == "" || f.Severity == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
	return findings
}

// on returns the findings about one server.
func on(findings []doctor.Finding, node string) (about []doctor.Finding) {
	return slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Node != node })
}

// onlyNotes fails t for a problem or a warning that does not come from the load of the machine.
func onlyNotes(t *testing.T, findings []doctor.Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Severity != doctor.SeverityNote && f.Code != doctor.CodeLua && f.Code != doctor.CodeLatency && f.Code != doctor.CodeClockDrift {
			t.Error(f)
		}
	}
}

// What NewQuorum refuses is a problem. A server that has just started is one only if no majority
// votes.
func TestCheckQuorum(t *testing.T) {
	restarted := func(id *pipe.Identity) { id.Started = time.Now() }
	for _, c := range []struct {
		name     string
		change   map[int]func(*pipe.Identity)
		servers  int
		node     string // of the finding
		code     doctor.Code
		severity doctor.Severity
		seen     string
	}{
		{"sound", nil, 3, "10.0.0.0:6379", doctor.CodePersistence, doctor.SeverityNote, "is not known"},
		{"even", nil, 4, "", doctor.CodeQuorum, doctor.SeverityProblem, "there are 4 servers"},
		{"too few", nil, 1, "", doctor.CodeQuorum, doctor.SeverityProblem, "there are 1 servers"},
		{"replica", map[int]func(*pipe.Identity){1: func(id *pipe.Identity) { id.Role = "slave" }}, 3, "10.0.0.1:6379", doctor.CodeReplica, doctor.SeverityProblem, "a replica"},
		{"Sentinel", map[int]func(*pipe.Identity){2: func(id *pipe.Identity) { id.Mode = "sentinel" }}, 3, "10.0.0.2:6379", doctor.CodeSentinel, doctor.SeverityProblem, "a Sentinel"},
		{
			"twice",
			map[int]func(*pipe.Identity){0: func(id *pipe.Identity) { id.RunID = "x" }, 2: func(id *pipe.Identity) { id.RunID = "x" }},
			3, "10.0.0.2:6379", doctor.CodeQuorum, doctor.SeverityProblem, "the same server as 10.0.0.0:6379",
		},
		{"no run id", map[int]func(*pipe.Identity){0: func(id *pipe.Identity) { id.RunID = "" }}, 3, "10.0.0.0:6379", doctor.CodeRights, doctor.SeverityProblem, "no run_id"},
		{"restarted", map[int]func(*pipe.Identity){1: restarted}, 3, "10.0.0.1:6379", doctor.CodeRestart, doctor.SeverityNote, "its grants count in 30s"},
		{"most restarted", map[int]func(*pipe.Identity){0: restarted, 1: restarted}, 3, "10.0.0.0:6379", doctor.CodeRestart, doctor.SeverityProblem, "its grants count in 30s"},
		{"two of five restarted", map[int]func(*pipe.Identity){0: restarted, 1: restarted}, 5, "10.0.0.0:6379", doctor.CodeRestart, doctor.SeverityNote, "it started 0 s ago"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var masters []*redis.Client
			for i := range c.servers {
				m := redistest.Bubble(t)
				if change := c.change[i]; change != nil {
					m.Identify(change)
				}
				masters = append(masters, m.Client(t, func(o *redis.Options) { o.Addr = fmt.Sprintf("10.0.0.%d:6379", i) }))
			}
			findings := examineAll(t, lockcore.Options{}, masters...)
			want(t, on(findings, c.node), c.code, c.severity, c.seen)
			for _, f := range findings {
				if f.Severity != doctor.SeverityNote && (f.Code != c.code || c.severity == doctor.SeverityNote) {
					t.Errorf("%s: also %v", c.name, f)
				}
			}
		})
	}
}

// CheckQuorum refuses what it cannot examine, and ends with ctx.
func TestCheckQuorumErrors(t *testing.T) {
	t.Parallel()
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer func() { _ = sentinel.Close() }()
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = away.Close() }()
	for want, c := range map[string]struct {
		masters []*redis.Client
		o       lockcore.Options
	}{
		"there are no masters":               {nil, lockcore.Options{}},
		"masters[1] is nil":                  {[]*redis.Client{away, nil, away}, lockcore.Options{}},
		"masters[2] is a failover client":    {[]*redis.Client{away, away, sentinel}, lockcore.Options{}},
		`Options.Prefix is "a b"`:            {[]*redis.Client{away, away, away}, lockcore.Options{Prefix: "a b"}},
		"ReplicaAcks.N is 1, must be 0":      {[]*redis.Client{away, away, away}, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}}},
		"lockcore: unavailable: 127.0.0.1:1": {[]*redis.Client{away, away, away}, lockcore.Options{}},
	} {
		if findings, err := doctor.CheckQuorum(t.Context(), c.masters, c.o); err == nil || !strings.Contains(err.Error(), want) || len(findings) > 0 {
			t.Errorf("%v, want %q; %v", err, want, findings)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := doctor.CheckQuorum(ended, []*redis.Client{away, away, away}, lockcore.Options{}); err == nil || err.Error() != "enough" {
		t.Errorf("ctx: %v", err)
	}
}

// Sound servers cause notes only, and keep no key. A silent server is a warning, and a problem if it
// takes the majority.
// Shows: D1
func TestCheckQuorumReal(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	var servers []*redistest.Server
	var masters []*redis.Client
	for range 3 {
		s := redistest.Real(t, sound...)
		servers, masters = append(servers, s), append(masters, s.Client(t))
	}
	findings := examineAll(t, lockcore.Options{}, masters...)
	onlyNotes(t, findings)
	for i, s := range servers {
		want(t, on(findings, s.Addr()), doctor.CodeServer, doctor.SeverityNote, " round trips: ")
		for _, code := range []doctor.Code{doctor.CodeRestart, doctor.CodePersistence} {
			if f, found := find(findings, code); found {
				t.Errorf("with appendfsync always: %v", f)
			}
		}
		if n := masters[i].DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys left", n)
		}
	}
	servers[2].Pause()
	findings, err := doctor.CheckQuorum(t.Context(), masters, lockcore.Options{})
	ok(t, err)
	want(t, on(findings, servers[2].Addr()), doctor.CodeUnreachable, doctor.SeverityWarning, "no usable reply")
	servers[1].Stop()
	findings, err = doctor.CheckQuorum(t.Context(), masters, lockcore.Options{})
	ok(t, err)
	for _, s := range servers[1:] {
		want(t, on(findings, s.Addr()), doctor.CodeUnreachable, doctor.SeverityProblem, "no usable reply")
	}
	servers[2].Resume()
}

// Persistence that was set after the start of a server does not say what the start has lost, so its
// grants do not count sooner.
func TestCheckQuorumReconfigured(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	var masters []*redis.Client
	for range 3 {
		rdb := redistest.Real(t).Client(t)
		ok(t, rdb.ConfigSet(t.Context(), "appendonly", "yes").Err())
		ok(t, rdb.ConfigSet(t.Context(), "appendfsync", "always").Err())
		masters = append(masters, rdb)
	}
	want(t, examineAll(t, lockcore.Options{Terms: lockcore.Terms{Lease: time.Hour}}, masters...), doctor.CodeRestart, doctor.SeverityProblem, "its grants count in 1h")
}

// The settings of a server, its topology and the rights of its user cause findings with its name.
func TestCheckQuorumServers(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	primary := redistest.Real(t, append([]string{"--repl-diskless-sync-delay", "0"}, sound...)...)
	replica := replicaOf(t, primary)
	node := clusterNode(t, sound...)
	young := redistest.Real(t, "--appendonly", "yes", "--appendfsync", "everysec")
	pauses := redistest.Real(t, append([]string{"--no-appendfsync-on-rewrite", "yes"}, sound...)...)
	evicts := redistest.Real(t, append([]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, sound...)...)
	watched := redistest.Real(t, sound...)
	sub := watched.Client(t).Subscribe(t.Context(), "__sentinel__:hello")
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(t.Context())
	ok(t, err)
	slow := redistest.Real(t, sound...)
	all := []*redistest.Server{primary, replica, node, young, pauses, evicts, watched, slow}
	var masters []*redis.Client
	for _, s := range all {
		var edit []func(*redis.Options)
		if s == slow {
			edit = append(edit, slowly(60*time.Millisecond))
		}
		masters = append(masters, s.Client(t, edit...))
	}
	findings := examineAll(t, lockcore.Options{Terms: lockcore.Terms{Lease: time.Second}}, masters...)
	for _, c := range []struct {
		s        *redistest.Server
		code     doctor.Code
		severity doctor.Severity
		seen     string
	}{
		{primary, doctor.CodeFailover, doctor.SeverityNote, "1 connected"},
		{replica, doctor.CodeReplica, doctor.SeverityProblem, "it is a replica"},
		{node, doctor.CodeClusterClient, doctor.SeverityProblem, "a node of a Cluster"},
		{young, doctor.CodePersistence, doctor.SeverityNote, "appendonly is yes, appendfsync everysec"},
		{pauses, doctor.CodePersistence, doctor.SeverityNote, "no-appendfsync-on-rewrite yes"},
		{evicts, doctor.CodeEviction, doctor.SeverityProblem, "allkeys-lru"},
		{watched, doctor.CodeSentinel, doctor.SeverityWarning, "1 subscribers"},
		{slow, doctor.CodeLatency, doctor.SeverityWarning, "the lease is 1s"},
	} {
		want(t, on(findings, c.s.Addr()), c.code, c.severity, c.seen)
	}
}

// Without +info a server never votes. With it and the least rights there is no problem.
// Shows: D2
func TestCheckQuorumRights(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const rest = " ~holdfast:2:* &holdfast:2:wake:*"
	var masters []*redis.Client
	for _, rights := range []string{" +info +config|get", " +info", ""} {
		masters = append(masters, asUser(t, redistest.Real(t, sound...), least+rights+rest))
	}
	findings := examineAll(t, lockcore.Options{}, masters...)
	for i, m := range masters {
		about := on(findings, m.Options().Addr)
		switch i {
		case 0:
			onlyNotes(t, about)
			if f, found := find(about, doctor.CodeRestart); found {
				t.Errorf("%v", f)
			}
		case 1:
			want(t, about, doctor.CodePersistence, doctor.SeverityNote, "not known")
			want(t, about, doctor.CodeRestart, doctor.SeverityProblem, "s ago")
		case 2:
			want(t, about, doctor.CodeRights, doctor.SeverityProblem, "INFO (NOPERM")
		}
	}
}

// otherClock changes the replies to TIME.
func otherClock(by time.Duration) func(*redis.Options) {
	return func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return clockConn{c, by}, err
		}
	}
}

type clockConn struct {
	net.Conn
	by time.Duration
}

var timeReply = regexp.MustCompile(`^\*2\r\n\$10\r\n(\d{10})\r\n`)

func (c clockConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if at := timeReply.FindSubmatchIndex(b[:n]); at != nil {
		seconds, _ := strconv.ParseInt(string(b[at[2]:at[3]]), 10, 64)
		copy(b[at[2]:], strconv.FormatInt(seconds+int64(c.by.Seconds()), 10))
	}
	return n, err
}

// Clocks that differ by more than ten seconds, or by more than a shorter lease, are a warning.
func TestCheckQuorumClocks(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := []*redistest.Server{redistest.Real(t, sound...), redistest.Real(t, sound...), redistest.Real(t, sound...)}
	for _, c := range []struct {
		ahead, lease  time.Duration
		found, tokens bool
	}{
		{5 * time.Second, 30 * time.Second, false, false},
		{20 * time.Second, 30 * time.Second, true, false},
		{5 * time.Second, 2 * time.Second, true, true},
		{-90 * time.Second, 5 * time.Minute, true, true},
	} {
		findings := examineAll(t, lockcore.Options{Terms: lockcore.Terms{Lease: c.lease}}, s[0].Client(t), s[1].Client(t, otherClock(c.ahead)), s[2].Client(t))
		f, found := find(findings, doctor.CodeClockSpread)
		if found != c.found || strings.Contains(f.Consequence, "tokens") != c.tokens || found && !strings.Contains(f.Seen, s[1].Addr()) {
			t.Errorf("%v ahead, lease %v: %v", c.ahead, c.lease, f)
		}
	}
}
