// Package fence makes a resource refuse the writes of an earlier holder of a key, by its fencing
// token.
//
// This program writes to a resource in memory. The write with an old token is refused:
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
//		locks, err := lockcore.NewMemory(lockcore.Options{}) // several processes: lockcore.New
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
// A process may be paused between its last check of the lock and its write. When it continues,
// another holder may have had the key. No lock prevents the late write. Only the resource can
// refuse it. It compares the fencing token, a number that grows with every hold
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// There are three fences. Each remembers the newest hold of a key and accepts any number of its
// writes. For an older hold it returns an error that satisfies [ErrStale].
//
//   - [Redis] is a fence for single commands on a key of Redis.
//   - [SQL] is a fence for a transaction in PostgreSQL, MySQL, MariaDB or SQLite.
//   - [Memory] is a fence inside a process.
//
// # Guarantees
//
//   - A hold with a smaller token than one that the resource has seen writes nothing.
//   - Another hold with an equal token writes nothing either. A failover that loses a grant can
//     cause equal tokens. The hold that the resource sees first is accepted.
//   - The check and the write are atomic: one script in Redis, one transaction in SQL, one critical
//     section of a Memory.
//   - SQL works at READ COMMITTED, REPEATABLE READ and SERIALIZABLE. In MySQL it works with and
//     without clientFoundRows.
//   - In Redis the data of the fence has a TTL: a minute more than Keep, and at least 24 h and a
//     minute. It takes about 200 bytes for each key that was written meanwhile.
//   - After the end of that TTL, Redis refuses holds that began longer than Keep ago. So no old
//     hold is accepted because a newer one was forgotten. This requires that all writers of the key
//     have the same Keep, or that none has a Keep above 24 h.
//   - No error contains the ID of a hold.
//
// # Limits
//
//   - A write is refused only if the resource has seen a newer hold. A newer hold that the resource
//     has not seen refuses nothing. See Advance below.
//   - Writes of one hold are not ordered. A late duplicate of the first may arrive after the
//     second.
//   - A resource that loses its data also loses the data of the fence: by an eviction, a flush or a
//     failover of Redis, for example. After a failover the resource and the fence are consistent,
//     because they are replicated together.
//   - If the Redis of the lock has lost its data and its clock was set back, a new hold may be
//     refused until that clock has caught up. No old hold is accepted.
//   - The clocks of the Redis of the lock and of the Redis of the resource may differ by a minute.
//     If they differ by more, and the fence remembers no hold, a new hold may be refused or an old
//     one accepted.
//
// # What you must do
//
//   - Write to the resource only through the fence, and under one key and one kind of lock. Tokens
//     of two keys cannot be compared.
//   - If a write depends on a read, read after Advance, not before. Otherwise an older hold can
//     write after the read, and you overwrite its write. Redis.Do needs Advance only if the written
//     value was computed from a read.
//   - In SQL, make Advance the first statement of the transaction. With REPEATABLE READ of MySQL, a
//     transaction that has read before Advance continues to see the old data, without any error.
//   - Stop at ErrStale. A retry under the same hold does not help.
//   - Run a transaction again, whole and under the same hold, if the server could not serialize it:
//     SQLSTATE 40001 or 40P01 in PostgreSQL (usual from REPEATABLE READ on), 1213, 1205 or 1020 in
//     MySQL and MariaDB, SQLITE_BUSY in SQLite. Advance several keys in one order everywhere.
//   - In SQLite begin the transaction with BEGIN IMMEDIATE and set a busy_timeout, so that it waits
//     for the one writer. With modernc.org/sqlite the data source name ends with
//     ?_txlock=immediate&_pragma=busy_timeout(5000).
//   - End the transaction of a holder that has stopped, see below.
//   - Create the table with [SQL.Create]. Its user needs SELECT, INSERT and UPDATE.
//   - Rows of the table are never deleted. Tokens are µs since 1970, so DELETE FROM holdfast_fence
//     WHERE token < … deletes the rows of holds that began before a time. Choose a time before the
//     start of every hold that can still write, because a deleted row refuses no hold.
//
// # Open transactions
//
// Advance locks the row until its transaction ends. If a holder is paused or disconnected with an
// open transaction, every newer hold waits for as long as the server permits, by default long or
// forever.
//
//   - Begin the transaction with the ctx of the hold. BeginTx of database/sql rolls back when that
//     ctx ends, if the process runs and is connected.
//   - Let the server end idle transactions: idle_in_transaction_session_timeout in PostgreSQL (0 by
//     default, which is never), idle_transaction_timeout in MariaDB, wait_timeout in MySQL (8 h).
//     For these connections set it a little longer than the longest pause within a transaction.
//   - Waiting transactions end with lock_timeout in PostgreSQL (SQLSTATE 55P03), with
//     innodb_lock_wait_timeout in MySQL and MariaDB (50 s; error 1205), or with their own ctx.
//
// # Rights in Redis
//
// [Redis] stores the data of the fence of a key in holdfast-fence:1:{KEY}:KEY, or :{TAG}:KEY if the
// key has a hash tag. Its user needs that pattern, the commands of the script, your own keys and
// the commands that you pass to Do. Here those are balance:* and INCRBY. At the redis-cli prompt,
// in one line:
//
//	ACL SETUSER resource reset on >PASSWORD ~holdfast-fence:1:* ~balance:* resetchannels -@all +eval +evalsha +time +get +set +incrby
//
// Use another user and another client than for the Locker. A user with the rights of both could
// write the keys of the lock with the commands of the resource. A user that can write
// holdfast-fence:1:* can make the fence accept old holds or refuse new ones. docs/security.md has
// the line for a shell, and shows how the user survives a restart.
//
// # A row with its own fence
//
// If a write changes only one row, the row can contain the fence. This saves the table and a round
// trip. Existing rows need the columns with their defaults. If a column is NULL, no token is
// greater than it, and every hold is refused. In PostgreSQL:
//
//	ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0, ADD COLUMN fence_hold text NOT NULL DEFAULT ''
//
// In MySQL and MariaDB, where "a" and "A" are equal in a VARCHAR:
//
//	ALTER TABLE accounts ADD COLUMN fence BIGINT NOT NULL DEFAULT 0, ADD COLUMN fence_hold VARBINARY(64) NOT NULL DEFAULT ''
//
// In SQLite, which adds one column a statement:
//
//	ALTER TABLE accounts ADD COLUMN fence INTEGER NOT NULL DEFAULT 0; ALTER TABLE accounts ADD COLUMN fence_hold TEXT NOT NULL DEFAULT ''
//
// Compare and set in one statement. $2 is the token and $3 the ID of the hold:
//
//	UPDATE accounts SET balance = $1, fence = $2, fence_hold = $3
//	WHERE id = $4 AND (fence < $2 OR (fence = $2 AND fence_hold = $3))
//
// If no row is affected, the hold is stale or there is no such row. SQLite accepts the statement as
// it is. In MySQL write ? for each parameter, with the arguments $1 to $4, $2, $2, $3, and connect
// with clientFoundRows=true. Otherwise a write that changes nothing looks stale.
//
// # Testing
//
// A [Hold] is a struct: make two, and check that the older one is refused. locktest.NewServer
// starts a Redis inside the test, and a Memory can replace a database. Tokens for [Redis] must be
// about time.Now().UnixMicro(). The tests on PostgreSQL, MariaDB and SQLite are in
// proof/sqltest. MySQL's own server is supported by design but not tested.
package fence
