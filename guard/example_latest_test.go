package guard_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Each change of a document rebuilds the index. Of the calls that come during a rebuild, one runs
// afterwards, and covers the others.
func ExampleLatest() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	begun, finish := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		ran, err := guard.Latest(ctx, locks, "index", lockcore.Terms{}, func(context.Context) error {
			close(begun)
			<-finish
			return nil
		})
		fmt.Println("the first call ran:", ran, err)
	})
	<-begun
	var mu sync.Mutex
	rebuilt := 0
	var more sync.WaitGroup
	for range 5 {
		more.Go(func() {
			_, err := guard.Latest(ctx, locks, "index", lockcore.Terms{Wait: lockcore.Forever}, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				rebuilt++ // it reads the documents as they are now
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	close(finish)
	first.Wait()
	more.Wait()
	fmt.Println("at least one rebuild afterwards:", rebuilt >= 1)
	// Output:
	// the first call ran: true <nil>
	// at least one rebuild afterwards: true
}
