// Package asynqmw provides middlewares for asynq handlers: a task runs once, alone, next to a
// limited number of others, or at a rate.
//
//	package main
//
//	import (
//		"context"
//		"log"
//
//		"github.com/hibiken/asynq"
//		"github.com/redis/go-redis/v9"
//
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/middleware/asynqmw"
//	)
//
//	func main() {
//		rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//		defer rdb.Close()
//		locks, err := lockcore.New(rdb, lockcore.Options{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer locks.Close(context.Background())
//		charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { log.Print("charged"); return nil })
//		payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
//		task := asynq.NewTask("charge", []byte(`{"payment_id": 7}`))
//		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task); err != nil {
//			log.Fatal(err)
//		}
//		srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{}))
//		log.Print("stopped: ", srv.Run(payment(charge))) // ends at Ctrl-C
//	}
//
// Run the program twice, and end it with Ctrl-C. The second run charges nothing, because payment 7
// is done.
//
//   - [Once]: after a task of a key has succeeded, the work of that key is not done again within
//     Keep.
//   - [Exclusive]: no two tasks of a key run at the same time. [ExclusiveAll]: for several keys.
//   - [Limited]: at most n tasks of a key run at once. [LimitedAll]: for several limits.
//   - [Shared]: tasks of a key run together, but never with a task of Exclusive.
//   - [Throttled]: a key's tasks begin at a rate. guard.Paused stops them for a time.
//   - [Latest]: a key's newest task runs.
//   - [Ticks]: a periodic task is enqueued once for each tick, by any number of processes.
//
// asynq gives up on a handler at the task's deadline, when the task's lease is lost, and at a
// shutdown, but cannot stop it. The retry starts while the first run continues, whose result asynq
// discards. This package prevents that.
//
// The page docs/asynq.md has a worker to start from, and explains conflicts, tickets and
// parking.
//
// # Guarantees
//
//   - The key belongs to one execution of the handler, not to the task ID. It is held until the
//     handler has returned, even after asynq has given up on the task.
//   - A retry that finds the key busy is a conflict, not a failure. With [Configure] and
//     [RetryLater] it uses up no retry.
//   - Once records a late success. The retry then does nothing, and the task ends as completed.
//   - The handler's ctx is canceled before the lease can end, at the task's deadline, and when
//     asynq cancels the task.
//   - A panic releases the key and continues. Under Once it leaves the key abandoned after a
//     takeover or with guard.AtMostOnce.
//
// # Limits
//
//   - If a process dies between the effect and the record, the outcome is unknown.
//     [OnceOptions].Mode decides what the next attempt does.
//   - After a timeout of the last attempt asynq archives the task, even if the handler succeeds
//     later. Under Once the key is then done.
//   - If a run returns nil after its lease was lost, asynq gets nil, because a retry cannot undo
//     the run. The Observer gets event.Lost.
//   - The keys of a killed worker are busy for at most one lease. asynq delivers its tasks again
//     after 60 to 120 s.
//
// # What you must do
//
//   - Pass the configuration of the server through [Configure] or [ConfigureParking], after all
//     other fields are set. Otherwise each conflict uses up a retry.
//   - Wrap each handler separately: mux.Use applies to every task type.
//   - Choose a key that names what must not be used twice at a time, see [KeyFunc].
//   - Check ctx in the handler, and return context.Cause(ctx) when it has ended. If the handler
//     returns nil then, Once records half of a run as done.
//   - Give a task at least one retry, and a timeout that is longer than its work and its wait, see
//     [ConflictPolicy].
//   - Turn on [Parking] if one key can have many tasks: each task that waits occupies a worker.
//   - Put Exclusive outside and Once inside, and use one order in all programs. Put recovery and
//     tracing outside the guards, and your own timeout inside.
//   - Do not enqueue a task with asynq.Unique, or with its own ID, from its own handler, because
//     asynq still has the task.
//   - Call srv.Shutdown, then locks.Close, then rdb.Close.
//
// Most have an example whose name ends in incorrect.
//
// # Testing
//
// A middleware needs no asynq server: wrap the handler, and call ProcessTask. Package locktest makes
// keys busy, abandoned or lost.
package asynqmw
