package redis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A server is durable only if it writes to the disk before each reply, also while it rewrites its file,
// and did so from its start.
func TestDurable(t *testing.T) {
	redistest.MoreRights(t)
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for name, c := range map[string]struct {
		args []string
		set  []string // pairs, after the start
		want bool
	}{
		"durable":           {args: durable, want: true},
		"not in a rewrite":  {args: append(durable, "--no-appendfsync-on-rewrite", "yes")},
		"appendonly later":  {set: []string{"appendonly", "yes", "appendfsync", "always"}},
		"appendfsync later": {args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, set: []string{"appendfsync", "always"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got backend.ServerInfo
			rdb := redistest.Real(t, c.args...).Client(t)
			for pair := range slices.Chunk(c.set, 2) {
				if err := rdb.ConfigSet(t.Context(), pair[0], pair[1]).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if name == "appendfsync later" && !strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "config|set") {
				t.Skip("the server does not count subcommands")
			}
			b, err := redisbackend.New(rdb, redisbackend.Options{MinAge: time.Hour, Connected: func(info backend.ServerInfo) error {
				got = info
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			key := b.Key(backend.KindExclusive, "k")
			if _, err := b.Inspect(t.Context(), &key, backend.NoRecord); err != nil || got.RunID == "" || got.Durable != c.want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
