package locktest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func ExampleRunQuorum() {
	_ = func(t *testing.T) { // func TestServers
		var masters []*redis.Client
		for addr := range strings.SplitSeq(os.Getenv("REDIS_ADDRS"), ",") {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = rdb.Close() }()
			masters = append(masters, rdb)
		}
		locktest.RunQuorum(t, masters, lockcore.Options{})
	}
	// Output:
}
