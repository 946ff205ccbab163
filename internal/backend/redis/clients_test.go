package redis_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
)

type (
	embedsClient    struct{ *goredis.Client }
	embedsCluster   struct{ *goredis.ClusterClient }
	embedsRing      struct{ *goredis.Ring }
	embedsPipeliner struct{ *goredis.AutoPipeliner }
)

func single(o goredis.Options) goredis.UniversalClient { return goredis.NewClient(&o) }

func clustered(o goredis.ClusterOptions) goredis.UniversalClient {
	o.Addrs = []string{"127.0.0.1:1"}
	return goredis.NewClusterClient(&o)
}

func failover() goredis.UniversalClient {
	return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
}

func failoverCluster() *goredis.ClusterClient {
	return goredis.NewFailoverClusterClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
}

func universal(o goredis.UniversalOptions) goredis.UniversalClient {
	if len(o.Addrs) == 0 {
		o.Addrs = []string{"127.0.0.1:1"}
	}
	return goredis.NewUniversalClient(&o)
}

// pipeliner returns an AutoPipeliner. rdb is closed when the test ends, because the AutoPipeliner
// does not close it.
func pipeliner(t *testing.T, rdb goredis.UniversalClient) *goredis.AutoPipeliner {
	t.Helper()
	p, err := rdb.AutoPipeline()
	ok(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	return p
}

func noSlots(context.Context) ([]goredis.ClusterSlot, error) { return nil, errors.ErrUnsupported }

// clientsByRow has the clients of each row of the table in docs/operate.md, by the beginning of the row.
func clientsByRow(t *testing.T) map[string][]goredis.UniversalClient {
	t.Helper()
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	withHook, withNodeHook := single(goredis.Options{}), goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	withHook.AddHook(keepCommands{})
	withNodeHook.OnNewNode(func(c *goredis.Client) { c.AddHook(keepCommands{}) })
	return map[string][]goredis.UniversalClient{
		"`redis.NewClient`, also with": {
			single(goredis.Options{}), single(goredis.Options{Dialer: dial}), single(goredis.Options{Network: "unix", Addr: "/nowhere"}),
			goredis.NewClient(&goredis.Options{}).WithTimeout(time.Second), universal(goredis.UniversalOptions{}),
		},
		"`redis.NewClient` with `Limiter`": {
			single(goredis.Options{Limiter: &breaker{}}), single(goredis.Options{Protocol: 3, ClientSideCacheConfig: &goredis.ClientSideCacheConfig{}}),
		},
		"a client with hooks":             {withHook, withNodeHook},
		"`redis.NewClient` to a replica":  {single(goredis.Options{})},
		"`redis.NewFailoverClient`, or":   {failover(), universal(goredis.UniversalOptions{MasterName: "m"})},
		"the same with `ReplicaOnly`, or": {universal(goredis.UniversalOptions{MasterName: "m", ReadOnly: true})},
		"`redis.NewFailoverClusterClient`, or": {
			failoverCluster(), universal(goredis.UniversalOptions{MasterName: "m", RouteByLatency: true}),
			universal(goredis.UniversalOptions{MasterName: "m", RouteRandomly: true}), universal(goredis.UniversalOptions{MasterName: "m", IsClusterMode: true}),
		},
		"`redis.NewClusterClient`, also with": {
			clustered(goredis.ClusterOptions{}), clustered(goredis.ClusterOptions{Dialer: dial}), clustered(goredis.ClusterOptions{NewClient: goredis.NewClient}),
			universal(goredis.UniversalOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}), universal(goredis.UniversalOptions{IsClusterMode: true}),
		},
		"`redis.NewClusterClient` with `ReadOnly`": {
			clustered(goredis.ClusterOptions{ReadOnly: true}), clustered(goredis.ClusterOptions{RouteByLatency: true}), clustered(goredis.ClusterOptions{RouteRandomly: true}),
		},
		"`redis.NewClusterClient` with `ClusterSlots`": {
			clustered(goredis.ClusterOptions{ClusterSlots: noSlots}), clustered(goredis.ClusterOptions{ClusterSlots: noSlots, NewClient: goredis.NewClient}),
		},
		"`redis.NewRing`, or":                  {goredis.NewRing(&goredis.RingOptions{}), embedsRing{goredis.NewRing(&goredis.RingOptions{})}},
		"a struct that embeds a ClusterClient": {embedsCluster{failoverCluster()}},
		"any other wrapper, or an `AutoPipeliner`": {
			inWrapper(single(goredis.Options{})),
			embedsClient{goredis.NewClient(&goredis.Options{})},
			embedsCluster{goredis.NewClusterClient(&goredis.ClusterOptions{})},
			pipeliner(t, single(goredis.Options{})),
			embedsPipeliner{pipeliner(t, failoverCluster())},
		},
	}
}

// New makes of each kind of client what the table in docs/operate.md says, and the table has no other
// rows.
func TestKindsOfClients(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| client | what the Locker makes of it |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows, all := strings.Split(table, "\n"), clientsByRow(t)
	for begins, clients := range all {
		made, refused := "", false
		for _, row := range rows {
			if strings.HasPrefix(row, "| "+begins) {
				_, made, _ = strings.Cut(strings.TrimPrefix(row, "| "), " | ")
			}
		}
		refused = strings.HasPrefix(made, "an error")
		if own, foreign := strings.HasPrefix(made, "own clients"), strings.HasPrefix(made, "used as it is"); !own && !foreign && !refused {
			t.Errorf("%s: the table says %q", begins, made)
		}
		for i, rdb := range clients {
			b, err := redis.New(rdb, redis.Options{Options: backend.Options{Locker: "l", CleanupsFailed: func(int, error) {}}})
			switch {
			case refused != (err != nil):
				t.Errorf("%s: client %d: error %v, the table says %q", begins, i, err, made)
			case err == nil:
				if b.Own() != strings.HasPrefix(made, "own clients") {
					t.Errorf("%s: client %d: own clients %v, the table says %q", begins, i, b.Own(), made)
				}
				b.Close()
			case strings.Contains(made, "cluster-slots") && !(errors.Is(err, redis.ErrClusterSlots) && strings.Contains(err.Error(), "use redis.NewFailoverClient")):
				t.Errorf("%s: client %d: %v", begins, i, err)
			}
			_ = rdb.Close()
		}
	}
	if len(rows) != len(all) {
		t.Errorf("the table has %d rows, the test %d", len(rows), len(all))
	}
}

// The other types of go-redis that send commands are not a UniversalClient, so the compiler refuses
// them.
func TestNoClients(t *testing.T) {
	t.Parallel()
	for _, other := range []any{(*goredis.Conn)(nil), (*goredis.Tx)(nil), (*goredis.Pipeline)(nil), (*goredis.SentinelClient)(nil)} {
		if _, is := other.(goredis.UniversalClient); is {
			t.Errorf("%T is a UniversalClient", other)
		}
	}
}

// keepCommands is a hook that changes nothing.
type keepCommands struct{}

func (keepCommands) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (keepCommands) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (keepCommands) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
