package asynqmw_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Each change of a document enqueues a task that rebuilds the index from all documents. The newest
// task runs, so the index has all changes in the end. The others may end without a run.
func ExampleLatest() {
	rdb, stop := exampleRedis()
	defer stop()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	const changes = 10
	var documents, index, rebuilt atomic.Int64
	done := make(chan struct{})
	rebuild := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		rebuilt.Add(1)
		if n := documents.Load(); index.Swap(n) != n && n == changes {
			close(done)
		}
		return nil
	})
	mux := asynq.NewServeMux()
	mux.Handle("rebuild", asynqmw.Latest(locks, asynqmw.ByType(), asynqmw.LatestOptions{})(rebuild))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}))
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()
	client := asynq.NewClientFromRedisClient(rdb)
	for range changes {
		documents.Add(1)
		if _, err := client.Enqueue(asynq.NewTask("rebuild", nil)); err != nil { // with different IDs
			log.Fatal(err)
		}
	}
	<-done
	fmt.Println("the index has all changes:", index.Load() == changes)
	fmt.Println("rebuilt more often than changed:", rebuilt.Load() > changes)
	// Output:
	// the index has all changes: true
	// rebuilt more often than changed: false
}
