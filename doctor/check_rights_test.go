package doctor_test

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// least are the rights that docs/operate.md lists.
const least = "-@all +eval +evalsha +time +get +set +hget +hmget +hset +hdel +pexpire +pttl +del +zadd +zrem +zrange +zrank +zscore +zcard +publish +subscribe +unsubscribe +ping"

// asUser returns a client of a user with these rights.
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

// With the least rights there is no problem, and a finding names the commands that are refused.
// Each missing right is a problem that names the command.
// Shows: D2
func TestCheckRights(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const keys, channels = " ~holdfast:2:* ", " &holdfast:2:wake:*"
	s := redistest.Real(t, sound...)
	findings := examine(t, asUser(t, s, least+keys+channels), lockcore.Options{})
	want(t, findings, doctor.CodeNotSeen, doctor.SeverityNote, "INFO (NOPERM")
	want(t, findings, doctor.CodeNotSeen, doctor.SeverityNote, "CONFIG GET (NOPERM")
	for _, f := range findings {
		if f.Severity != doctor.SeverityNote && f.Code != doctor.CodeLatency && f.Code != doctor.CodeClockDrift {
			t.Error(f)
		}
	}
	for _, right := range strings.Fields(least)[1:] {
		command := strings.ToUpper(right[1:])
		switch command {
		case "SUBSCRIBE", "UNSUBSCRIBE", "PING", "DEL": // not by a script
			if command == "SUBSCRIBE" {
				rules := strings.Replace(least, right+" ", "", 1)
				want(t, examine(t, asUser(t, s, rules+keys+channels), lockcore.Options{}), doctor.CodeChannel, doctor.SeverityWarning, "refused")
			}
			continue
		}
		findings := examine(t, asUser(t, s, strings.Replace(least, right+" ", "", 1)+keys+channels), lockcore.Options{})
		want(t, findings, doctor.CodeRights, doctor.SeverityProblem, command+": ")
	}
	for _, key := range s.Client(t).Keys(t.Context(), "*").Val() {
		if d := s.Client(t).PTTL(t.Context(), key).Val(); d <= 0 {
			t.Errorf("%s is left without a TTL", key)
		}
	}
}

// Missing rights to keys, to one kind of key, to channels, or to WAIT for ReplicaAcks are problems.
// Shows: D1
func TestCheckRightsScope(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const keys, channels = " ~holdfast:2:* ", " &holdfast:2:wake:*"
	s := redistest.Real(t, sound...)
	for _, c := range []struct{ rules, seen string }{
		{least + channels, "EVAL: NOPERM"},
		{least + " ~holdfast:2:x:* " + channels, "EVAL: NOPERM"},
		{least + " ~other:* " + channels, "EVAL: NOPERM"},
		{least + keys, "PUBLISH: "},
		{least + keys + " &other:*", "PUBLISH: "},
	} {
		want(t, examine(t, asUser(t, s, c.rules), lockcore.Options{}), doctor.CodeRights, doctor.SeverityProblem, c.seen)
	}
	acks := lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}}
	findings := examine(t, asUser(t, s, least+keys+channels), acks)
	want(t, findings, doctor.CodeRights, doctor.SeverityProblem, "WAIT: ")
	if f, _ := find(findings, doctor.CodeRights); !strings.Contains(f.Remedy, "+wait") || !strings.Contains(f.Remedy, "https://") {
		t.Errorf("the remedy for WAIT: %s", f.Remedy)
	}
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// A user without the right to see the number of replicas gets one finding about too few replicas. A
// withdrawal that is confirmed late leaves no key.
func TestCheckReplicaAcksUnseen(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, sound...)
	asUser(t, s, least+" +wait ~holdfast:2:* &holdfast:2:wake:*")
	faults := faulty.New(t)
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password, o.Dialer = "job", "pw", faults.Dial(o.Dialer) })
	late := faults.CutRequest(faulty.Script("leave"))
	findings := examine(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}})
	want(t, findings, doctor.CodeReplicaAcks, doctor.SeverityProblem, "0 of 1 replicas acknowledged")
	for _, f := range findings {
		if f.Severity == doctor.SeverityProblem && f.Code != doctor.CodeReplicaAcks && f.Code != doctor.CodeLatency && f.Code != doctor.CodeClockDrift {
			t.Error(f)
		}
	}
	select {
	case <-late.Struck():
	default:
		t.Error("inconclusive: nothing was withdrawn")
	}
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// A Cluster also needs CLUSTER SLOTS, and no other right.
// Shows: D2
func TestCheckRightsCluster(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := clusterNode(t, sound...)
	asUser(t, s, least+" +cluster|slots ~holdfast:2:* &holdfast:2:wake:*")
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}, Username: "job", Password: "pw"})
	t.Cleanup(func() { _ = c.Close() })
	for _, f := range examine(t, c, lockcore.Options{}) {
		if f.Severity != doctor.SeverityNote && f.Code != doctor.CodeLatency && f.Code != doctor.CodeClockDrift {
			t.Error(f)
		}
	}
}

// For a user without the rights to PEXPIRE and DEL, Check writes no key.
// Shows: D1
func TestCheckRightsLeavesNothing(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	rules := strings.NewReplacer("+pexpire ", "", "+del ", "").Replace(least)
	want(t, examine(t, asUser(t, s, rules+" ~* &*"), lockcore.Options{}), doctor.CodeRights, doctor.SeverityProblem, "PEXPIRE: ")
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// Check tries exactly the commands that the scripts use.
// Shows: D2
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
	for _, text := range wire.Texts() {
		all.WriteString(text)
	}
	used, tried := called(all.String(), `\bp?call\('([A-Z]+)'`), called(doctor.Probe, `try\('([A-Z]+)'`)
	if len(used) < 10 || !slices.Equal(used, tried) {
		t.Errorf("the scripts use %q, Check tries %q", used, tried)
	}
	for _, name := range used {
		if !strings.Contains(least, "+"+strings.ToLower(name)) {
			t.Errorf("%s is not among the least rights", name)
		}
	}
}

// A subscription that receives no message is a warning: a proxy may drop messages.
func TestCheckChannelDeaf(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t, sound...)
	deaf := s.Client(t, func(o *redis.Options) { o.Dialer = swallow(o.Dialer) })
	want(t, examine(t, deaf, lockcore.Options{}), doctor.CodeChannel, doctor.SeverityWarning, "no message arrives")
}

// swallow returns a dialer whose connections drop messages to subscribers.
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
