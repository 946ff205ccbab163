package conn_test

import (
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A client of go-redis asks a sentinel for the primary, and then subscribes to the announcements.
// It misses an announcement between the two: the client stays with the old primary as long as its
// connections are open. Its next dial finds the new one, and closes them.
func TestGoRedisFact_missedAnnouncement(t *testing.T) {
	before, after := miniredis.RunT(t), miniredis.RunT(t)
	for name, m := range map[string]*miniredis.Miniredis{"before": before, "after": after} {
		_ = m.Set("name", name)
	}
	sentinel, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sentinel.Close()
	primary := before.Addr()
	subscribed := make(chan struct{}, 1)
	for name, reply := range map[string]server.Cmd{
		"SENTINEL": func(c *server.Peer, _ string, args []string) {
			if !strings.EqualFold(args[0], "get-master-addr-by-name") { // the list of sentinels
				primary = after.Addr() // announced while no one listens
				c.WriteLen(0)
				return
			}
			host, port, _ := net.SplitHostPort(primary)
			c.WriteStrings([]string{host, port})
		},
		"SUBSCRIBE": func(c *server.Peer, _ string, args []string) {
			for i, channel := range args {
				c.WriteLen(3)
				c.WriteBulk("subscribe")
				c.WriteBulk(channel)
				c.WriteInt(i + 1)
			}
			c.Flush()
			subscribed <- struct{}{}
		},
	} {
		if err := sentinel.Register(name, reply); err != nil {
			t.Fatal(err)
		}
	}
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{sentinel.Addr().String()}})
	defer func() { _ = c.Close() }()
	serves := func(want string) {
		t.Helper()
		if got, err := c.Get(t.Context(), "name").Result(); got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	serves("before")
	<-subscribed
	for range 3 {
		serves("before")
	}
	dialed := c.Conn() // takes the only connection, so that the next command dials
	defer func() { _ = dialed.Close() }()
	_ = dialed.Ping(t.Context()).Err()
	serves("after")
}

// A client that reads from the replicas of a Sentinel acquires nothing.
func TestSentinelReplicaOnly(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Sentinel(t)
	locks, err := lockcore.New(s.Client(t, func(o *redis.FailoverOptions) { o.ReplicaOnly = true }), lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	if _, err := locks.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("on a replica: %v, want READONLY", err)
	}
}
