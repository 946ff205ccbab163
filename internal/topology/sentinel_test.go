package topology_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	logging.Disable() // these tests cause faults on purpose
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// afterFailover has the rules without ReplicaAcks: a grant or a record may be lost with the
// primary.
var afterFailover = rules{overlaps: true, secondRuns: true, longest: wait + slack, gap: recovery, holds: 600}

// rounds runs a test on new servers for each failover.
func rounds(t *testing.T, one func(*testing.T)) {
	t.Helper()
	for range *failovers {
		t.Run("", one)
	}
}

// sentinels starts the load on a trio. Only the client differs from that for one server.
func sentinels(t *testing.T, s *redistest.Trio, o lockcore.Options) *load {
	t.Helper()
	return start(t, o, func() redis.UniversalClient { return redis.NewFailoverClient(s.Options()) })
}

// The primary is killed, and Sentinel replaces it. There are two holders for at most a lease, a
// resource that checks tokens never accepts a stale write, and all callers continue.
func TestSentinelKill(t *testing.T) {
	testlevel.Campaign(t)
	rounds(t, func(t *testing.T) {
		s := redistest.Sentinel(t)
		l := sentinels(t, s, lockcore.Options{})
		old := s.Master()
		began := time.Now()
		old.Stop()
		l.fault() // not earlier: until now records were lost with it
		next := s.Failover(old)
		t.Logf("failover after %v", time.Since(began).Round(time.Millisecond))
		l.each(50)
		backAgain(t, next)
		l.forA(*runFor)
		l.end()
		l.judge(afterFailover)
	})
}

// backAgain checks that a new primary has received the scripts, and that every process is
// subscribed there.
func backAgain(t *testing.T, master *redistest.Server) {
	t.Helper()
	c := master.Client(t)
	if errs := c.Info(t.Context(), "errorstats").Val(); !strings.Contains(errs, "errorstat_NOSCRIPT") {
		t.Errorf("inconclusive: the new master knew the scripts: %s", errs)
	}
	var channels []string
	if !chaos.Within(20*time.Second, func() bool {
		channels = c.PubSubChannels(t.Context(), "holdfast:*").Val()
		return len(channels) == processes
	}) {
		t.Fatalf("%d of %d processes are subscribed", len(channels), processes)
	}
}

// The primary is stopped, replaced by Sentinel, and resumed. For some seconds two servers accept
// writes.
func TestSentinelThaw(t *testing.T) {
	testlevel.Campaign(t)
	rounds(t, func(t *testing.T) {
		s := redistest.Sentinel(t)
		l := sentinels(t, s, lockcore.Options{})
		l.thaw(s)
		l.judge(afterFailover)
	})
}

// The same with ReplicaAcks. There is no overlap and no second run, because the sentinels promote
// the replica that has the most data.
func TestSentinelThawReplicaAcks(t *testing.T) {
	testlevel.Campaign(t)
	rounds(t, func(t *testing.T) {
		s := redistest.Sentinel(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
		l := sentinels(t, s, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}})
		l.thaw(s)
		l.judge(rules{longest: wait + slack, gap: recovery, holds: 500})
	})
}

// demoted waits until old no longer accepts writes.
func (l *load) demoted(old *redistest.Server) {
	l.t.Helper()
	c := old.Client(l.t)
	said := ""
	if !chaos.Within(90*time.Second, func() bool { // a late sentinel does nothing for 30 s (TILT)
		said = c.Info(l.t.Context(), "replication").Val()
		return strings.Contains(said, "role:slave")
	}) {
		l.t.Fatalf("it is still a master: %s", said)
	}
}

// thaw stops the primary, waits for the failover, and resumes the old primary.
func (l *load) thaw(s *redistest.Trio) {
	l.t.Helper()
	old := s.Master()
	l.fault()
	began := time.Now()
	old.Pause()
	s.Failover(old)
	l.t.Logf("failover after %v", time.Since(began).Round(time.Millisecond))
	l.each(50)
	l.fault()
	old.Resume()
	l.demoted(old)
	l.fault() // until now its records were lost with it
	l.forA(*runFor)
	l.each(50)
	l.end()
}
