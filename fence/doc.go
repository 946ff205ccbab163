// Package fence lets a resource reject the writes of an earlier holder of a key, by its fencing
// token.
//
// This program writes to a resource in memory. The write with an old token fails:
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"fmt"
//
//		"github.com/holdfast-go/holdfast/fence"
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/lockcore"
//	)
//
//	func main() {
//		ctx := context.Background()
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
//		if err != nil {
//			panic(err)
//		}
//		defer locks.Close(ctx)
//		var file fence.Memory
//		write := func() error { fmt.Println("write"); return nil }
//		err = guard.Exclusive(ctx, locks, "file:1", lockcore.Terms{}, func(ctx context.Context) error {
//			hold, err := fence.Of(ctx, "file:1")
//			if err != nil {
//				return err
//			}
//			return file.Do(hold, write)
//		})
//		fmt.Println("holder:", err)
//		old := fence.Hold{Key: "file:1", Token: 1, ID: "paused"}
//		fmt.Println("earlier holder is stale:", errors.Is(file.Do(old, write), fence.ErrStale))
//	}
//
// A process may be paused between its last check of the lock and its write, while another holder
// gets the key. No lock prevents the late write. Only the resource can, by comparing the fencing
// token, a number that grows with every hold
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// Each fence remembers the newest hold of a key and accepts any number of its writes. For an older
// hold it returns an error that satisfies [ErrStale]:
//
//   - [Redis] is a fence for single commands on a key of Redis.
//   - [SQL] is a fence for a transaction in PostgreSQL, MySQL, MariaDB or SQLite, or for one row.
//   - [Memory] is a fence inside a process.
//
// # Guarantees
//
//   - A hold with a smaller token than one that the resource has seen writes nothing.
//   - Nor does another hold with an equal token, which a failover that loses a grant can cause. The
//     hold that the resource sees first is accepted.
//   - The check and the write are atomic: one script in Redis, one transaction in SQL, one critical
//     section of a Memory.
//   - No error contains the ID of a hold.
//
// # Limits
//
//   - A write is rejected only if the resource has seen a newer hold, see Advance below.
//   - Writes of one hold are not ordered: a late duplicate of the first may follow the second.
//   - A resource that loses its data, by an eviction, a flush or a failover for example, also loses
//     the data of the fence. After a failover both are consistent, because they are replicated
//     together.
//   - If the Redis of the lock has lost its data and its clock was set back, a new hold may be
//     rejected until that clock has caught up. No old hold is accepted.
//
// # What you must do
//
//   - Write to the resource only through the fence, and under one key and one kind of lock, because
//     tokens of two keys cannot be compared.
//   - If a write depends on a read, call Advance before the read. Otherwise an older hold can write
//     in between, and you overwrite its write.
//   - Stop at ErrStale. A retry under the same hold does not help.
//   - Give the resource its own client and user in Redis. docs/security.md has their rights.
//
// # Testing
//
// A [Hold] is a struct: make two, and check that the older one is rejected. locktest.NewServer
// starts a Redis inside the test, and a Memory can replace a database. Tokens for [Redis] must be
// about time.Now().UnixMicro().
package fence
