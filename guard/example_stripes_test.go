package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A stock in 120 segments with a key each: up to 120 orders run at the same time. An order begins
// at a random segment. It tries three segments without a wait, then it waits for the first of them.
// If a segment is empty, it goes on to the next one. examples/stripes is a complete program.
func ExampleExclusive_stripes() {
	const segments, tries = 120, 3
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	errEmpty := errors.New("the segment is empty")
	var stock [segments]int
	for i := range stock {
		stock[i] = 2
	}
	order := func(ctx context.Context) error {
		from := func(segment int, wait time.Duration) error {
			key := fmt.Sprint("stock:", segment)
			return guard.Exclusive(ctx, locks, key, lockcore.Terms{Wait: wait}, func(context.Context) error {
				if stock[segment] == 0 {
					return errEmpty
				}
				stock[segment]--
				return nil
			})
		}
		first := rand.N(segments)
		for i := range tries {
			if err := from((first+i)%segments, lockcore.NoWait); !errors.Is(err, errEmpty) && !errors.Is(err, lockcore.ErrBusy) {
				return err
			}
		}
		for i := range segments {
			if err := from((first+i)%segments, time.Minute); !errors.Is(err, errEmpty) {
				return err
			}
		}
		return errEmpty
	}
	var sold, refused atomic.Int64
	var customers sync.WaitGroup
	for range 250 {
		customers.Go(func() {
			switch err := order(context.Background()); {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, errEmpty):
				refused.Add(1)
			default:
				fmt.Println(err)
			}
		})
	}
	customers.Wait()
	fmt.Println(sold.Load(), "orders,", refused.Load(), "times sold out")
	// Output: 240 orders, 10 times sold out
}
