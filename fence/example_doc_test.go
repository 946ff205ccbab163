package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The program in the documentation of the package.
func Example() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	var file fence.Memory
	write := func() error { fmt.Println("write"); return nil }
	err = guard.Exclusive(ctx, locks, "file:1", lockcore.Terms{}, func(ctx context.Context) error {
		hold, err := fence.Of(ctx, "file:1")
		if err != nil {
			return err
		}
		return file.Do(hold, write)
	})
	fmt.Println("holder:", err)
	old := fence.Hold{Key: "file:1", Token: 1, ID: "paused"}
	fmt.Println("earlier holder is stale:", errors.Is(file.Do(old, write), fence.ErrStale))
	// Output:
	// write
	// holder: <nil>
	// earlier holder is stale: true
}
