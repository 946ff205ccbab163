package doctor_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/lockcore"
)

func Example() { //nolint:testableexamples // it needs a server
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	findings, err := doctor.Check(context.Background(), rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err) // no server could be checked
	}
	for _, f := range findings {
		fmt.Println(f)
	}
}
