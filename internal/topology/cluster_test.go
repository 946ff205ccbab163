package topology_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// cluster starts the load on a Cluster. Only the client differs from that for one server.
func cluster(t *testing.T, s *redistest.Shards, o lockcore.Options) *load {
	t.Helper()
	return start(t, o, func() redis.UniversalClient { return redis.NewClusterClient(s.Options()) })
}

// slotOf returns the slot of an exclusive key of the load.
func slotOf(s *redistest.Shards, i int) int { return s.Slot("holdfast:2:x:{" + keyName(i) + "}") }

// A primary of a Cluster is killed. The same rules hold as with Sentinel.
func TestClusterFailover(t *testing.T) {
	testlevel.Campaign(t)
	rounds(t, func(t *testing.T) {
		s := redistest.Cluster(t)
		l := cluster(t, s, lockcore.Options{})
		slot := slotOf(s, 0)
		old := s.Master(slot)
		began := time.Now()
		old.Stop()
		l.fault()
		s.Failover(slot, old)
		t.Logf("failover after %v", time.Since(began).Round(time.Millisecond))
		l.each(50)
		l.forA(*runFor)
		l.end()
		l.judge(afterFailover)
	})
}

// Slots of a Cluster move from primary to primary, with keys that are held and waited for. There is
// no overlap, no lost lease and no second run.
func TestClusterMigrations(t *testing.T) {
	testlevel.Campaign(t)
	migrate(t, lockcore.Options{}, *migrations)
}

// The same with ReplicaAcks, which follow a key to its new server.
func TestClusterMigrationsReplicaAcks(t *testing.T) {
	testlevel.Campaign(t)
	migrate(t, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}}, max(*migrations/5, 1))
}

func migrate(t *testing.T, o lockcore.Options, n int) {
	t.Helper()
	s := redistest.Cluster(t)
	l := cluster(t, s, o)
	slots, moved := 0, 0
	for i := 0; i < n || i < 4*n && moved < n/2; i++ { // more slots if too few of them had a key
		slots++
		slot := slotOf(s, i%keys)
		from := s.Master(slot)
		for _, to := range s.Masters() {
			if to != from {
				m := s.Begin(slot, to)
				l.forA(*runFor / 60)
				m.Keys()
				l.forA(*runFor / 60) // a large slot takes long: until the end its keys stay held, but can be neither acquired nor released
				m.End()
				moved += m.Moved
				break
			}
		}
		l.forA(*runFor / 10)
	}
	l.end()
	t.Logf("%d slots moved with %d keys", slots, moved)
	l.judge(rules{longest: wait, gap: recovery, holds: 20 * n})
	if moved < n/2 {
		t.Error("inconclusive: too few of the slots had a key")
	}
}
