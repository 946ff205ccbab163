package lockcore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

func ExampleLocker_Acquire() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{Lease: 10 * time.Second})
	if err != nil {
		fmt.Println("not run:", err) // errors.Is(err, lockcore.ErrNotRun)
		return
	}
	defer func() {
		if err := lease.Release(ctx); err != nil {
			fmt.Println("the lease ended early:", err)
		}
	}()
	work := lease.Context() // canceled before the lease can end
	fmt.Println(work.Err(), lease.Token() > 0)
	// Output: <nil> true
}

// The second call for the same key gets the record of the first run.
func ExampleLocker_Claim() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	for range 2 {
		lease, record, err := locks.Claim(ctx, "charge:7", lockcore.Claim{})
		switch {
		case err != nil:
			fmt.Println(err)
		case record != nil:
			fmt.Printf("done: %s\n", record.Data)
		default:
			fmt.Println("run", lease.Attempt(), lease.Complete(ctx, []byte("receipt 17"), time.Hour))
		}
	}
	// Output:
	// run 1 <nil>
	// done: receipt 17
}

// An operator finds the holder of a key, and revokes its hold.
func ExampleLocker_Revoke() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	ctx := lockcore.WithTask(context.Background(), "nightly report")
	lease, err := locks.Acquire(ctx, "report", lockcore.Terms{Lease: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	h, err := locks.Inspect(ctx, event.KindExclusive, "report")
	fmt.Println(h.State, h.Holder.Task, err)
	fmt.Println(locks.Revoke(ctx, event.KindExclusive, "report"))
	<-lease.Context().Done() // after about a second, the next renewal finds the revocation
	fmt.Println(context.Cause(lease.Context()))
	fmt.Println(lease.Release(ctx))
	// Output:
	// held nightly report <nil>
	// <nil>
	// lockcore: lease revoked
	// lockcore: lease revoked
}
