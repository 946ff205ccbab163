package lockcore_test

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// least are the rights that docs/doctor.md lists.
const least = "-@all +eval +evalsha +time +hget +hmget +hset +hdel +pexpire +pttl +del +zadd +zrem +zrange +zcard +zpopmin +publish +subscribe +unsubscribe +ping"

// asUser is a client of a user with some rights.
func asUser(t *testing.T, s *redistest.Server, rules string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", "job", "reset", "on", ">pw"}
	for r := range strings.FieldsSeq(rules) {
		args = append(args, r)
	}
	ok(t, s.Client(t).Do(t.Context(), args...).Err())
	ok(t, s.Client(t).Do(t.Context(), "ACL", "LOG", "RESET").Err())
	return s.Client(t, func(o *redis.Options) { o.Username, o.Password = "job", "pw" })
}

// With the least rights nothing is a problem, and what could not be asked is said. Each right less is one, by its name; each
// answer is what a Locker would have met.
func TestCheckRights(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const keys, channels = " ~holdfast:1:* ", " &holdfast:1:wake:*"
	s := redistest.Real(t, sound...)
	findings := examine(t, asUser(t, s, least+keys+channels), lockcore.Options{})
	want(t, findings, lockcore.CodeNotSeen, lockcore.SeverityNote, "INFO (NOPERM")
	want(t, findings, lockcore.CodeNotSeen, lockcore.SeverityNote, "CONFIG GET (NOPERM")
	for _, f := range findings {
		if f.Severity != lockcore.SeverityNote && f.Code != lockcore.CodeLatency && f.Code != lockcore.CodeClockDrift {
			t.Error(f)
		}
	}
	for _, right := range strings.Fields(least)[1:] {
		command := strings.ToUpper(right[1:])
		switch command {
		case "SUBSCRIBE", "UNSUBSCRIBE", "PING", "DEL": // not by a script
			if command == "SUBSCRIBE" {
				rules := strings.Replace(least, right+" ", "", 1)
				want(t, examine(t, asUser(t, s, rules+keys+channels), lockcore.Options{}), lockcore.CodeChannel, lockcore.SeverityWarning, "refused")
			}
			continue
		}
		findings := examine(t, asUser(t, s, strings.Replace(least, right+" ", "", 1)+keys+channels), lockcore.Options{})
		want(t, findings, lockcore.CodeRights, lockcore.SeverityProblem, command+": ")
	}
	for _, key := range s.Client(t).Keys(t.Context(), "*").Val() {
		if d := s.Client(t).PTTL(t.Context(), key).Val(); d <= 0 {
			t.Errorf("%s is left without a TTL", key)
		}
	}
}

// What else is missing is a problem too: keys, one of the two kinds of them, channels, WAIT where it is needed.
func TestCheckRightsScope(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const keys, channels = " ~holdfast:1:* ", " &holdfast:1:wake:*"
	s := redistest.Real(t, sound...)
	for _, c := range []struct{ rules, seen string }{
		{least + channels, "EVAL: NOPERM"},
		{least + " ~holdfast:1:x:* " + channels, "EVAL: NOPERM"},
		{least + " ~other:* " + channels, "EVAL: NOPERM"},
		{least + keys, "PUBLISH: "},
		{least + keys + " &other:*", "PUBLISH: "},
	} {
		want(t, examine(t, asUser(t, s, c.rules), lockcore.Options{}), lockcore.CodeRights, lockcore.SeverityProblem, c.seen)
	}
	acks := lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}}
	findings := examine(t, asUser(t, s, least+keys+channels), acks)
	want(t, findings, lockcore.CodeRights, lockcore.SeverityProblem, "WAIT: ")
	if f, _ := find(findings, lockcore.CodeRights); !strings.Contains(f.Remedy, "+wait") || !strings.Contains(f.Remedy, "https://") {
		t.Errorf("what to do about WAIT: %s", f.Remedy)
	}
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// Who may not ask how many replicas there are is told of too few all the same, once, and not as of something unknown. What the trial takes back
// late leaves nothing either.
func TestCheckReplicaAcksUnseen(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, sound...)
	asUser(t, s, least+" +wait ~holdfast:1:* &holdfast:1:wake:*")
	faults := locktest.NewFaults(t)
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "job", "pw", faults.Dial(o.Dialer) })
	late := faults.CutRequest(locktest.Script("leave"))
	findings := examine(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}})
	want(t, findings, lockcore.CodeReplicaAcks, lockcore.SeverityProblem, "0 of 1 replicas acknowledged")
	for _, f := range findings {
		if f.Severity == lockcore.SeverityProblem && f.Code != lockcore.CodeReplicaAcks && f.Code != lockcore.CodeLatency && f.Code != lockcore.CodeClockDrift {
			t.Error(f)
		}
	}
	select {
	case <-late.Struck():
	default:
		t.Error("inconclusive: nothing was taken back")
	}
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// In a Cluster CLUSTER SLOTS comes on top, and that is all.
func TestCheckRightsCluster(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := clusterNode(t, sound...)
	asUser(t, s, least+" +cluster|slots ~holdfast:1:* &holdfast:1:wake:*")
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}, Username: "job", Password: "pw"})
	t.Cleanup(func() { _ = c.Close() })
	for _, f := range examine(t, c, lockcore.Options{}) {
		if f.Severity != lockcore.SeverityNote && f.Code != lockcore.CodeLatency && f.Code != lockcore.CodeClockDrift {
			t.Error(f)
		}
	}
}

// A user without the right to PEXPIRE or DEL gets no key that would stay.
func TestCheckRightsLeavesNothing(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	rules := strings.NewReplacer("+pexpire ", "", "+del ", "").Replace(least)
	want(t, examine(t, asUser(t, s, rules+" ~* &*"), lockcore.Options{}), lockcore.CodeRights, lockcore.SeverityProblem, "PEXPIRE: ")
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// What is tried is what the scripts use, neither more nor less.
func TestCheckTriesAllCommands(t *testing.T) {
	called := func(text, pattern string) []string {
		var names []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	var all strings.Builder
	ok(t, fs.WalkDir(lockcore.ScriptFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, err := lockcore.ScriptFiles.ReadFile(path)
			all.Write(b)
			return err
		}
		return err
	}))
	used, tried := called(all.String(), `\bcall\('([A-Z]+)'`), called(lockcore.Probe, `try\('([A-Z]+)'`)
	if len(used) < 10 || !slices.Equal(used, tried) {
		t.Errorf("the scripts use %q, tried are %q", used, tried)
	}
	for _, name := range used {
		if !strings.Contains(least, "+"+strings.ToLower(name)) {
			t.Errorf("%s is not among the least rights", name)
		}
	}
}

// A subscription that hears nothing is a warning: something between swallows messages.
func TestCheckChannelDeaf(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, sound...)
	deaf := s.Client(t, func(o *redis.Options) { o.Dialer = swallow(o.Dialer) })
	want(t, examine(t, deaf, lockcore.Options{}), lockcore.CodeChannel, lockcore.SeverityWarning, "no message arrives")
}

// swallow makes a dialer whose connections drop what is sent to subscribers.
func swallow(dial redistest.Dialer) redistest.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return deafConn{c}, err
	}
}

type deafConn struct{ net.Conn }

func (c deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !bytes.Contains(b[:n], []byte("\r\nmessage\r\n")) {
			return n, err
		}
	}
}
