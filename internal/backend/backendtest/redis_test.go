package backendtest_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func TestMain(m *testing.M) {
	logging.Disable() // the tests close subscriptions
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// world returns a World on a Redis server. dial returns a client of that server.
func world(t *testing.T, noGroups bool, dial func() *goredis.Client) backendtest.World {
	t.Helper()
	return backendtest.World{Backend: func(locker string) backend.Backend {
		b, err := redis.New(dial(), redis.Options{
			Options:  backend.Options{Locker: locker, Closing: make(chan struct{}), CleanupsFailed: func(int, error) {}},
			NoGroups: noGroups,
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}}
}

// The backend on miniredis conforms, in virtual time and without groups.
// Shows: I5, I6, L13, O6, M2
func TestMiniredis(t *testing.T) {
	testlevel.InMemory(t)
	backendtest.RunInBubble(t, func(t *testing.T) backendtest.World {
		m := redistest.Bubble(t)
		return world(t, true, func() *goredis.Client { return m.Client(t) })
	})
}

// The backend on a real server conforms, with groups.
func TestRedis(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Real(t)
	backendtest.Run(t, func(t *testing.T) backendtest.World {
		return world(t, false, func() *goredis.Client { return s.Client(t) })
	})
}
