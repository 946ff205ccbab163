package postgres_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
)

func Example() { //nolint:testableexamples // it needs a server; TestExample runs it
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, postgres.Create("")); err != nil { // once, with your migrations
		log.Fatal(err)
	}
	locks, err := postgres.New(pool, postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx) // before the pool

	// One at a time in all processes, for as long as it takes. No connection is held meanwhile.
	upload := func(context.Context) error {
		fmt.Println("uploading") // longer work stops when its ctx ends
		return nil
	}
	err = guard.Exclusive(ctx, locks, "partner:acme", lockcore.Terms{}, upload)
	fmt.Println("upload:", err)
}
