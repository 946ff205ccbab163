package redis_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A server is durable only if it writes to the disk before each reply, also while it rewrites its file.
func TestDurable(t *testing.T) {
	redistest.MoreRights(t)
	for durable, args := range map[bool][]string{
		true:  {"--appendonly", "yes", "--appendfsync", "always"},
		false: {"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"},
	} {
		var got backend.ServerInfo
		rdb := redistest.Real(t, args...).Client(t)
		b, err := redisbackend.New(rdb, redisbackend.Options{MinAge: time.Hour, Connected: func(info backend.ServerInfo) error {
			got = info
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		key := b.Key(backend.KindExclusive, "k")
		if _, err := b.Inspect(t.Context(), &key, backend.NoRecord); err != nil || got.RunID == "" || got.Durable != durable {
			t.Errorf("%v: %+v, %v", args, got, err)
		}
		b.Close()
	}
}
