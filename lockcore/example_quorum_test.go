package lockcore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Three servers that do not know of each other.
func ExampleNewQuorum() { //nolint:testableexamples // it needs servers
	var masters []*redis.Client
	for _, addr := range []string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"} {
		masters = append(masters, redis.NewClient(&redis.Options{Addr: addr}))
	}
	locks, err := lockcore.NewQuorum(masters, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	err = guard.Exclusive(ctx, locks, "report:2026-11", lockcore.Terms{}, func(context.Context) error {
		return nil // runs while at least two of the servers have granted the key
	})
	fmt.Println(err)
}
