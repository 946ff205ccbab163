package locktest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// runs calls Run briefly in a parallel subtest.
func runs(t *testing.T, name string, rdb redis.UniversalClient, o lockcore.Options) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		locktest.RunShortly(t, rdb, o)
	})
}

// wrapped is a client of an unknown type, like the own type of an application.
type wrapped struct{ redis.UniversalClient }

// Run passes on the Redis of this package, also through a client that it cannot copy and that has
// few connections. It leaves no keys behind.
// Shows: P6
func TestRun(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := locktest.NewServer(t)
	t.Cleanup(func() {
		if names := s.Names(); len(names) > 0 {
			t.Errorf("Run has left behind %q", names)
		}
	})
	few := s.Options()
	few.PoolSize = 3
	for name, o := range map[string]*redis.Options{"client": s.Options(), "wrapper": few} {
		rdb := redis.NewClient(o)
		t.Cleanup(func() { _ = rdb.Close() })
		if name == "wrapper" {
			runs(t, name, wrapped{rdb}, lockcore.Options{})
		} else {
			runs(t, name, rdb, lockcore.Options{Prefix: "other"})
		}
	}
}

// RunQuorum passes on three servers, and leaves no keys behind.
// Shows: P6
func TestRunQuorum(t *testing.T) { // not beside TestRun: three servers are much work
	testlevel.Full(t)
	var masters []*redis.Client
	for range 3 {
		s := locktest.NewServer(t)
		t.Cleanup(func() {
			if names := s.Names(); len(names) > 0 {
				t.Errorf("RunQuorum has left behind %q", names)
			}
		})
		rdb := redis.NewClient(s.Options())
		t.Cleanup(func() { _ = rdb.Close() })
		masters = append(masters, rdb)
	}
	locktest.RunQuorumShortly(t, masters, lockcore.Options{})
}

const foreign = "holdfast:2:x:{foreign}"

// leastRights are the rights that a Locker needs.
const leastRights = "-@all +eval +evalsha +time +get +set +hget +hmget +hset +hdel +pexpire +pttl +del +zadd +zrem +zrange +zrank +zscore +zcard " +
	"+publish +subscribe +unsubscribe +ping ~holdfast:2:* &holdfast:2:wake:*"

// Run passes on a real server, beside another Run and for a user with the least rights. It touches
// no other key, and only Check sends commands that are refused.
// Shows: P6
func TestRunReal(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t)
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	args := []any{"ACL", "SETUSER", "job", "reset", "on", ">pw"}
	for right := range strings.FieldsSeq(leastRights) {
		args = append(args, right)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Set(t.Context(), foreign, "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingElse(t, s) })
	runs(t, "all rights", s.Client(t), lockcore.Options{})
	runs(t, "least rights", s.Client(t, func(o *redis.Options) {
		o.Username, o.Password, o.DisableIdentity = "job", "pw", true
	}), lockcore.Options{})
}

func nothingElse(t *testing.T, s *redistest.Server) {
	t.Helper()
	ctx, rdb := context.Background(), redis.NewClient(s.Options()) // the ctx and clients of the test have ended
	defer rdb.Close()
	if names, err := rdb.Keys(ctx, "*").Result(); err != nil || !slices.Equal(names, []string{foreign}) {
		t.Errorf("in Redis are %q, error %v", names, err)
	}
	refused, err := rdb.ACLLog(ctx, 100).Result()
	if err != nil {
		t.Error(err)
	}
	for _, r := range refused {
		if !slices.Contains([]string{"info", "config|get", "role", "pubsub|numsub", "slowlog|get"}, r.Object) {
			t.Errorf("refused was %s %s: %s", r.Context, r.Object, r.Reason)
		}
	}
}

// Run passes on a Cluster, on keys of many slots.
// Shows: P6
func TestRunCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t, "--cluster-enabled", "yes")
	if err := s.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(s.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
		if t.Context().Err() != nil {
			t.Fatal("the cluster does not come up")
		}
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	runs(t, "client", rdb, lockcore.Options{})
}

// Run passes behind Sentinel, without network faults.
// Shows: P6
func TestRunSentinel(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	runs(t, "failover client", redistest.Sentinel(t).Client(t), lockcore.Options{})
}
