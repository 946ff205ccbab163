package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// fill makes a server refuse each new connection until the test ends or empty is called. Open
// connections work. rdb has one of them.
func fill(t *testing.T, rdb *redis.Client) (empty func()) {
	t.Helper()
	ctx := context.Background()
	ok(t, rdb.ConfigSet(ctx, "maxclients", "1").Err())
	empty = func() {
		if err := rdb.ConfigSet(ctx, "maxclients", "10000").Err(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(empty)
	return empty
}

// refused fails the test if the server has refused no connection.
func refused(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if strings.Contains(rdb.Info(t.Context(), "stats").Val(), "rejected_connections:0\r") {
		t.Error("inconclusive: no connection was refused")
	}
}

// The server is at maxclients when the first renewal is due. The Locker has one connection, that of
// the acquire. It keeps the lease, and then the release frees the key.
func TestMaxClients(t *testing.T) {
	const lease = 2 * time.Second
	for name, c := range map[string]struct {
		server []string
		client func(*redis.Options)
		call   testcall.Call
	}{
		"exclusive": {client: func(*redis.Options) {}},
		"shared":    {client: func(*redis.Options) {}, call: testcall.Call{Limit: lockcore.Limit{N: 3}}},
		"password":  {server: []string{"--requirepass", "p"}, client: func(o *redis.Options) { o.Password = "p" }},
		"database":  {client: func(o *redis.Options) { o.DB, o.ClientName = 1, "n" }},
		"bare":      {client: func(o *redis.Options) { o.Protocol, o.DisableIdentity = 2, true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "database" {
				redistest.MoreRights(t)
			}
			s := redistest.Real(t, c.server...)
			rdb := s.Client(t, c.client)
			l := lockerFor(t, s.Client(t, c.client), lockcore.Options{})
			c.call.Lease = lease
			le, err := c.call.Acquire(t.Context(), l, "k")
			ok(t, err)
			fill(t, rdb)
			time.Sleep(2 * lease)
			if err := le.Context().Err(); err != nil {
				t.Fatalf("the lease has ended: %v", context.Cause(le.Context()))
			}
			ok(t, le.Release(t.Context()))
			// A release without a reply in time is sent again after Release has returned, and leaves its
			// id, so a hash may stay without a state. An expired lease would leave a string for a day.
			eventually(t, "the key is released", func() bool {
				_, err := rdb.HGet(t.Context(), storedNames(event.KindExclusive, "k")[0], "s").Result()
				return errors.Is(err, redis.Nil)
			})
			refused(t, rdb)
		})
	}
}

// The server is at maxclients and has closed all connections of the Locker. The lease ends before
// its end on the server. The error of a call says why.
func TestMaxClientsNoConnection(t *testing.T) {
	testlevel.Full(t)
	redistest.MoreRights(t) // for another user the test itself logs in, and the refusal is its own error
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	l := lockerFor(t, s.Client(t), lockcore.Options{})
	le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Lease: 2 * time.Second})
	ok(t, err)
	empty := fill(t, admin)
	ok(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err())
	_, err = l.Acquire(t.Context(), "other", noWait)
	if !errors.Is(err, lockcore.ErrUnavailable) || !strings.Contains(err.Error(), "max number of clients reached") {
		t.Errorf("an acquire meanwhile: %v", err)
	}
	<-le.Context().Done()
	held, err := admin.Exists(t.Context(), storedNames(event.KindExclusive, "k")[0]).Result()
	if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrLost) || held != 1 || err != nil {
		t.Errorf("%v, and the server has %d key, %v", cause, held, err)
	}
	empty()
	le, err = l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
	ok(t, err)
	ok(t, le.Release(t.Context()))
}

// As TestMaxClients, with a lease on each primary of a Cluster.
func TestMaxClientsCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	const lease = 2 * time.Second
	s := redistest.Cluster(t)
	l := lockerFor(t, s.Client(t), lockcore.Options{})
	var held []*lockcore.Lease
	for i := range 20 {
		le, err := l.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{Lease: lease})
		ok(t, err)
		held = append(held, le)
	}
	var admins []*redis.Client
	for _, m := range s.Masters() {
		admins = append(admins, m.Client(t))
		fill(t, admins[len(admins)-1])
	}
	time.Sleep(2 * lease)
	for _, le := range held {
		ok(t, le.Release(t.Context()))
	}
	for _, rdb := range admins {
		refused(t, rdb)
		for _, name := range rdb.Keys(t.Context(), "*").Val() {
			eventually(t, name+" is released", func() bool {
				_, err := rdb.HGet(t.Context(), name, "s").Result()
				return errors.Is(err, redis.Nil)
			})
		}
	}
}
