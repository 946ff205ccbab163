// Package fence is for the resource's side of a lock: it refuses a write that comes from an older hold than one the resource has heard of.
//
// No lock keeps a process out that was paused between its last check and its write: it goes on as if nothing had happened, after another has
// had the key. Only the resource can tell, by the token, which grows with every hold
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
//	guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
//		hold, err := fence.Of(ctx, "account:42")
//		…
//		_, err = fence.Redis{Client: rdb}.Do(ctx, hold, "balance:42", "SET", 90) // a key in Redis, or
//		err = fence.Postgres.Advance(ctx, tx, hold)                              // a transaction in SQL, its first statement
//		…
//	})
//
// [Redis] is a fence for any single command on a key. [SQL] is a fence for a transaction in PostgreSQL,
// MySQL, MariaDB or SQLite. [Memory] is a fence inside the process. Each remembers the newest hold and
// accepts any number of its writes. For an older hold it returns an error that satisfies [ErrStale].
//
// # Guarantees
//
//   - A hold with a smaller token than one that the resource has seen writes nothing. Neither does another hold with an equal token, which
//     there can be after a failover that lost a grant: of the two the first to come stays.
//   - The check and the write are one: one script in Redis, one transaction in SQL, one critical section of a Memory.
//   - SQL: at READ COMMITTED, REPEATABLE READ and SERIALIZABLE, and whether MySQL counts the rows found or the rows changed.
//   - Redis: what is remembered has a TTL, a minute more than Keep and than 24 h; about 200 bytes for each key that was written meanwhile. When it has
//     ended, holds that began longer than Keep ago are refused, so that none gets in because its successor was forgotten, if all who
//     write to the key have the same Keep or none has one above 24 h.
//   - A hold's ID is in no error.
//
// # What it cannot promise
//
// A write is refused once a newer hold has been seen, not once there is one: see Advance below. Writes of one hold are not put in order: a
// late copy of the first may come after the second. A resource that loses its data has lost what it remembered: for Redis an eviction, a flush
// or a failover. After a failover memory and resource fit each other, since they are replicated together. A token is only as good as the lock's:
// where the lock's Redis has lost its data and its clock was set back, a new hold may be refused until its clock has caught up, and no old
// one is let in. The clocks of the lock's Redis and of the resource's may differ by a minute; beyond that, where nothing is
// remembered, a new hold may be refused or an old one let in.
//
// # What you must do
//
//   - Write to the resource through the fence only, and under one key of one kind of lock: tokens of two keys cannot be compared.
//   - Read after Advance, not before, what decides what you write: otherwise an older hold can still write in between, and you overwrite it. Redis.Do
//     needs that only if what it writes was read before. In SQL, Advance comes first in the transaction: with
//     MySQL's REPEATABLE READ a transaction that has read before goes on seeing what it saw then, without any error.
//   - Stop at ErrStale. Trying again under the same hold never helps.
//   - Try a transaction again, whole and under the same hold, where the server could not serialize it: SQLSTATE 40001 or 40P01 in PostgreSQL
//     (usual from REPEATABLE READ on), 1213, 1205 or 1020 in MySQL and MariaDB, SQLITE_BUSY in SQLite. Advance several keys in one
//     order everywhere.
//   - In SQLite begin the transaction with BEGIN IMMEDIATE and set a busy_timeout, so that it waits for the one writer. With
//     modernc.org/sqlite the data source name ends with ?_txlock=immediate&_pragma=busy_timeout(5000).
//   - End the transaction of a holder that has stopped. Advance locks the row until its transaction ends: a holder that is paused or cut off
//     with one open keeps every newer hold waiting there, for as long as the server lets it, which by default is long or for ever. Begin
//     it with the hold's ctx (BeginTx of database/sql rolls back when that ends, if the process runs and is connected), and have the server end
//     what hangs: idle_in_transaction_session_timeout in PostgreSQL (0 by default, which is never), idle_transaction_timeout in MariaDB, wait_timeout in MySQL
//     (8 h), for these connections a little more than the longest pause within a transaction. Those who wait give up by lock_timeout in
//     PostgreSQL (SQLSTATE 55P03), innodb_lock_wait_timeout in MySQL and MariaDB (50 s; 1205), or at the end of their own ctx.
//   - Make the table with [SQL.Create]; who writes needs SELECT, INSERT and UPDATE on it. Its rows stay. As tokens are µs since 1970,
//     DELETE FROM holdfast_fence WHERE token < … takes away those of holds that began before then. Take a time after which no hold from before can
//     still write, for a row that is gone refuses nobody.
//
// # Rights in Redis
//
// What [Redis] remembers of a key stands beside it, under holdfast-fence:1:{KEY}:KEY, or :{TAG}:KEY if the key has a hash tag. Its user needs that
// pattern, the commands of the script, your own keys and the commands that you give to Do; here those are balance:* and INCRBY. In one line, at the
// redis-cli prompt:
//
//	ACL SETUSER resource reset on >PASSWORD ~holdfast-fence:1:* ~balance:* resetchannels -@all +eval +evalsha +time +get +set +incrby
//
// Let it be another user than that of the Locker, on a client of its own: a user of both could write the lock's keys with the resource's commands. Whoever
// may write holdfast-fence:1:* can let old holds in or keep new ones out. docs/security.md has the line for a shell, and how it outlives a restart.
//
// # A row that carries its own fence
//
// It saves the table and a round trip where one row is all there is to write. The rows that there are need the columns with their defaults: in a
// column that is NULL nothing is smaller than $2, and every hold is refused for ever. In PostgreSQL:
//
//	ALTER TABLE accounts ADD COLUMN fence bigint NOT NULL DEFAULT 0, ADD COLUMN fence_hold text NOT NULL DEFAULT ''
//
// In MySQL and MariaDB, where a VARCHAR would take "a" for "A":
//
//	ALTER TABLE accounts ADD COLUMN fence BIGINT NOT NULL DEFAULT 0, ADD COLUMN fence_hold VARBINARY(64) NOT NULL DEFAULT ''
//
// In SQLite, which adds one column a statement:
//
//	ALTER TABLE accounts ADD COLUMN fence INTEGER NOT NULL DEFAULT 0; ALTER TABLE accounts ADD COLUMN fence_hold TEXT NOT NULL DEFAULT ''
//
// Compare before you set, $2 being the token and $3 the ID; no row affected means that the hold is stale, or that there is no such row. SQLite takes the statement as it is. MySQL writes ? for
// each, so that the arguments are $1 to $4, $2, $2, $3, and must count as PostgreSQL does, with clientFoundRows=true: else a write that changes
// nothing looks stale.
//
//	UPDATE accounts SET balance = $1, fence = $2, fence_hold = $3
//	WHERE id = $4 AND (fence < $2 OR (fence = $2 AND fence_hold = $3))
//
// # Testing
//
// A [Hold] is a struct: make two, the older of which must be refused. locktest.NewServer is a Redis
// in the test, and a Memory can stand for a database. Tokens for [Redis] must be about
// time.Now().UnixMicro(). The tests on PostgreSQL, MariaDB and SQLite are in internal/sqltest; MySQL's own
// server is supported by design but not tested.
package fence
