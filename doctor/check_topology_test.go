package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

// replicaOf returns a replica of primary that is in sync.
func replicaOf(t *testing.T, primary *redistest.Server) *redistest.Server {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	s := redistest.Real(t, "--replicaof", host, port)
	end := time.Now().Add(20 * time.Second)
	for !strings.Contains(s.Client(t).Info(t.Context(), "replication").Val(), "master_link_status:up") {
		if time.Now().After(end) {
			t.Fatal("the replica does not come up")
		}
		time.Sleep(20 * time.Millisecond) // between two polls
	}
	return s
}

// A replica is a problem. A primary with a replica needs min-replicas-to-write. More ReplicaAcks
// than replicas are a problem.
func TestCheckReplicas(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	primary := redistest.Real(t, append([]string{"--repl-diskless-sync-delay", "0"}, sound...)...)
	replica := replicaOf(t, primary)
	findings := examine(t, replica.Client(t), lockcore.Options{})
	want(t, findings, doctor.CodeReplica, doctor.SeverityProblem, "replica")
	if f, found := find(findings, doctor.CodeTrial); found {
		t.Errorf("reported twice: %v", f)
	}

	rdb := primary.Client(t)
	findings = examine(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 2}})
	want(t, findings, doctor.CodeFailover, doctor.SeverityNote, "1 connected")
	want(t, findings, doctor.CodeMinReplicas, doctor.SeverityWarning, "is 0")
	want(t, findings, doctor.CodeReplicaAcks, doctor.SeverityProblem, "waits for 2 replicas, and 1 are")
	if n := len(slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Code != doctor.CodeReplicaAcks })); n != 1 {
		t.Errorf("reported %d times", n)
	}

	ok(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	ok(t, rdb.ConfigSet(t.Context(), "min-replicas-max-lag", "60").Err())
	want(t, examine(t, rdb, lockcore.Options{}), doctor.CodeMinReplicas, doctor.SeverityWarning, "60 s")
	ok(t, rdb.ConfigSet(t.Context(), "min-replicas-max-lag", "10").Err())
	findings = examine(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}})
	for _, code := range []doctor.Code{doctor.CodeMinReplicas, doctor.CodeReplicaAcks, doctor.CodeTrial} {
		if f, found := find(findings, code); found {
			t.Errorf("for a sound pair: %v", f)
		}
	}
}

// A lag of 0 turns min-replicas-to-write off. INFO alone shows that, and without INFO there is no
// finding.
func TestCheckMinReplicasOff(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	const rest = " ~holdfast:2:* &holdfast:2:wake:*"
	primary := redistest.Real(t, append([]string{"--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "0"}, sound...)...)
	replicaOf(t, primary)
	want(t, examine(t, primary.Client(t), lockcore.Options{}), doctor.CodeMinReplicas, doctor.SeverityWarning, "max-lag is 0")
	want(t, examine(t, asUser(t, primary, least+" +info"+rest), lockcore.Options{}), doctor.CodeMinReplicas, doctor.SeverityWarning, "max-lag is 0")
	for _, rights := range []string{"", " +config|get"} {
		if f, found := find(examine(t, asUser(t, primary, least+rights+rest), lockcore.Options{}), doctor.CodeMinReplicas); found {
			t.Errorf("without INFO, with the right %q: %v", rights, f)
		}
	}
	ok(t, primary.Client(t).ConfigSet(t.Context(), "min-replicas-max-lag", "10").Err())
	if f, found := find(examine(t, asUser(t, primary, least+" +info"+rest), lockcore.Options{}), doctor.CodeMinReplicas); found {
		t.Errorf("both settings are on: %v", f)
	}
}

// If no Sentinel names the primary, Check returns an error. The reply of a Sentinel, or of a Redis
// in its place, is not a reply of the server.
func TestCheckNoMaster(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	plain := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{s.Addr()}, MaxRetries: -1})
	defer func() { _ = plain.Close() }()
	clients := map[string]redis.UniversalClient{"unknown command 'sentinel'": plain}
	for _, answer := range []serverError{"BUSY Redis is busy", "LOADING Redis is loading", "NOPERM may not"} {
		rdb := s.Client(t)
		rdb.AddHook(noMaster{answer})
		clients[string(answer)] = wrapper{rdb}
	}
	for answer, rdb := range clients {
		findings, err := doctor.Check(t.Context(), rdb, lockcore.Options{})
		if !errors.Is(err, lockcore.ErrUnavailable) || len(findings) > 0 || !strings.Contains(err.Error(), answer) || strings.Contains(err.Error(), ": :") {
			t.Errorf("%s: %v, %v", answer, err, findings)
		}
	}
}

// noMaster fails each command as a failover client does after that reply of its Sentinel.
type noMaster struct{ answer serverError }

func (noMaster) DialHook(next redis.DialHook) redis.DialHook { return next }

func (noMaster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h noMaster) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		err := fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(h.answer))
		cmd.SetErr(err)
		return err
	}
}

// A subscription of a Sentinel to the server is a warning for a client with a fixed address.
func TestCheckSentinel(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	rdb := redistest.Real(t).Client(t)
	sub := rdb.Subscribe(t.Context(), "__sentinel__:hello")
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(t.Context())
	ok(t, err)
	want(t, examine(t, rdb, lockcore.Options{}), doctor.CodeSentinel, doctor.SeverityWarning, "1 subscribers")
}

// A Cluster that lacks slots is a problem, and so is a client for one server.
func TestCheckCluster(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := clusterNode(t, sound...)
	findings := examine(t, s.Client(t), lockcore.Options{})
	want(t, findings, doctor.CodeClusterClient, doctor.SeverityProblem, "single server")
	ok(t, s.Client(t).ClusterDelSlotsRange(t.Context(), 0, 99).Err())
	end := time.Now().Add(20 * time.Second)
	for !strings.Contains(s.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:fail") && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond) // between two polls
	}
	want(t, examine(t, clusterClient(t, s), lockcore.Options{}), doctor.CodeClusterState, doctor.SeverityProblem, "cluster_state is fail, 16284 of 16384")
}

// Check examines every primary of a Cluster. A finding names its primary, also a primary that does
// not reply.
func TestCheckClusterMasters(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	args := append([]string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}, sound...)
	a, b := redistest.Real(t, args...), redistest.Real(t, args...)
	ctx := t.Context()
	ok(t, a.Client(t).ClusterAddSlotsRange(ctx, 0, 8191).Err())
	ok(t, b.Client(t).ClusterAddSlotsRange(ctx, 8192, 16383).Err())
	ok(t, b.Client(t).Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", 2).Err())
	host, port, _ := strings.Cut(b.Addr(), ":")
	ok(t, a.Client(t).ClusterMeet(ctx, host, port).Err())
	end := time.Now().Add(30 * time.Second)
	for _, s := range []*redistest.Server{a, b} {
		for info := ""; !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_assigned:16384"); {
			if time.Now().After(end) {
				t.Fatal(info)
			}
			time.Sleep(20 * time.Millisecond) // between two polls
			info = s.Client(t).ClusterInfo(ctx).Val()
		}
	}
	ok(t, b.Client(t).ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	findings := examine(t, clusterClient(t, a), lockcore.Options{})
	f, _ := find(findings, doctor.CodeEviction)
	if f.Node != b.Addr() {
		t.Errorf("%+v, want Node %s", f, b.Addr())
	}
	if f, found := find(findings, doctor.CodeTrial); found {
		t.Error(f)
	}
	for _, s := range []*redistest.Server{a, b} {
		if n := s.Client(t).DBSize(ctx).Val(); n != 0 {
			t.Errorf("%d keys left on %s", n, s.Addr())
		}
		if calls := s.Client(t).Info(ctx, "commandstats").Val(); !strings.Contains(calls, "cmdstat_zadd") {
			t.Errorf("the trial did not run on %s", s.Addr())
		}
	}
	b.Pause()
	want(t, examine(t, clusterClient(t, a), lockcore.Options{}), doctor.CodeUnreachable, doctor.SeverityProblem, "does not reply")
	b.Resume()
}

// A snapshot that failed is a problem, because Redis then refuses writes.
func TestCheckDisk(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "gone")
	ok(t, os.Mkdir(dir, 0o700))
	rdb := redistest.Real(t, "--dir", dir, "--save", "3600 1").Client(t)
	ctx := t.Context()
	ok(t, os.Remove(dir))
	ok(t, rdb.Set(ctx, "k", "v", 0).Err())
	_ = rdb.BgSave(ctx).Err()
	end := time.Now().Add(20 * time.Second)
	for !strings.Contains(rdb.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err") && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond) // between two polls
	}
	findings := examine(t, rdb, lockcore.Options{})
	want(t, findings, doctor.CodeDisk, doctor.SeverityProblem, "rdb_last_bgsave_status")
	if f, found := find(findings, doctor.CodeTrial); found {
		t.Errorf("reported twice: %v", f)
	}
}

// A failover client and a wrapper are notes, because a Locker cannot copy them.
func TestCheckSharedClient(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	want(t, examine(t, wrapper{s.Client(t)}, lockcore.Options{}), doctor.CodeSharedClient, doctor.SeverityNote, "wrapped")
	c := s.Client(t, func(o *redis.Options) { // as redis.NewFailoverClient makes it
		dial, addr := o.Dialer, o.Addr
		o.Addr = "FailoverClient"
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, addr) }
	})
	want(t, examine(t, c, lockcore.Options{}), doctor.CodeSharedClient, doctor.SeverityNote, "failover")
}

// A client that New refuses because its copies would not follow a failover is a finding, without a
// command.
func TestCheckClusterSlots(t *testing.T) {
	t.Parallel()
	o := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, RouteByLatency: true}
	rdb := redis.NewFailoverClusterClient(o)
	defer func() { _ = rdb.Close() }()
	findings := examine(t, rdb, lockcore.Options{})
	want(t, findings, doctor.CodeClusterSlots, doctor.SeverityProblem, "redis.NewFailoverClusterClient")
	if len(findings) != 1 || !strings.Contains(findings[0].Remedy, "redis.NewFailoverClient ") {
		t.Errorf("%v", findings)
	}
}
