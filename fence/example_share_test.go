package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A reader fills a cache late: it has read a row before a write, and its fill arrives after that
// write. Without a fence the cache would keep the old value until the next write.
//
// All shares that are held at the same time have one token. It is greater than that of the writer
// before them and smaller than that of the writer after them. So the fence refuses the late fill,
// and never refuses a reader because of another reader. For the same reason it does not distinguish
// two permits of guard.Limited. Writes that must not overlap need guard.Exclusive.
func ExampleMemory_lateCacheFill() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New and fence.Redis
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	const key = "price:apple"
	row := 10 // in the database
	var cache int
	var fenced fence.Memory
	fill := func(h fence.Hold, price int) error {
		return fenced.Do(h, func() error { cache = price; return nil })
	}

	// read returns the value for the cache, and the hold under which it was read.
	read := func() (hold fence.Hold, price int) {
		err := guard.Shared(ctx, locks, key, lockcore.Terms{}, func(ctx context.Context) (err error) {
			hold, err = fence.Of(ctx, key)
			price = row
			return err
		})
		if err != nil {
			panic(err)
		}
		return hold, price
	}
	late, old := read() // paused here for longer than its lease

	err = guard.Exclusive(ctx, locks, key, lockcore.Terms{}, func(ctx context.Context) error {
		hold, err := fence.Of(ctx, key)
		if err != nil {
			return err
		}
		row = 12
		return fill(hold, row) // or delete the entry; in both cases the fence sees the write
	})
	fmt.Println("write:", err)
	fmt.Println("the late fill is stale:", errors.Is(fill(late, old), fence.ErrStale))
	fmt.Println("a reader after the write:", fill(read()))
	fmt.Println("cache:", cache)
	// Output:
	// write: <nil>
	// the late fill is stale: true
	// a reader after the write: <nil>
	// cache: 12
}
