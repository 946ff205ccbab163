// Package asynqmw provides middlewares for asynq handlers: a task runs once, alone, or beside a
// limited number of others.
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
//   - [Exclusive]: no two tasks of a key run at the same time. [ExclusiveAll]: the same for tasks
//     with several keys.
//   - [Limited]: at most n tasks of a key run at the same time.
//   - [Shared]: tasks of a key run at the same time, but never beside a task of Exclusive.
//   - asynq.Unique, which is part of asynq: a task is not in the queue twice.
//
// asynq gives up on a handler at the task's deadline, when the task's lease is lost, and at a
// shutdown. It cannot stop the handler. The retry has the same task ID and starts beside the
// abandoned run, whose result asynq discards. So a handler that ignores its ctx runs several times
// at once, and its task ends archived although every run returned nil. This package prevents that.
//
// # Guarantees
//
//   - The key belongs to one execution of the handler, not to the task ID. It is held until the
//     handler's goroutine has returned, even after asynq has given up on the task.
//   - A retry that finds the key busy is a conflict, not a failure. It waits for a short time, then
//     comes back later. With [Configure] and the default policy it uses up no retry. See
//     [ConflictPolicy].
//   - Once records a late success. The retry then does nothing, and the task ends as completed.
//   - The handler's ctx is canceled before the lease can end, at the task's deadline, and when
//     asynq cancels the task.
//   - A panic releases the key and passes on. Under Once it leaves the key abandoned instead, after
//     a takeover or with guard.AtMostOnce.
//
// # Limits
//
//   - If a process dies after the effect and before the record, the outcome is unknown.
//     [OnceOptions].Mode decides what the next attempt does.
//   - If the attempt that timed out was the last one, asynq archives the task before the handler
//     returns. The record of Once then says that the key is done. If an operator runs the task
//     again, it does nothing.
//   - If a run returns nil after its lease was lost, asynq gets nil, because a retry cannot undo
//     the run. The Observer gets event.Lost.
//   - After a worker is killed, its keys are busy for at most one lease. asynq delivers its tasks
//     again after 60 to 120 s.
//
// # What you must do
//
//   - Pass the configuration of the server through [Configure], after all other fields are set.
//     Without it each conflict uses up a retry. Each middleware reports that once, as
//     event.Misconfigured.
//   - Wrap each handler separately. mux.Use applies to every task type, so use it only with
//     [ByTaskID].
//   - Choose a key that names what must not be used twice at a time. If the key is too broad, such
//     as the type of the task, unrelated tasks wait for each other. If it is too narrow, such as a
//     payload with a time in it, every task has another key.
//   - Check ctx in the handler, and return context.Cause(ctx) when it has ended. If the handler
//     returns nil then, Once records half of a run as done.
//   - Pass the ctx of [guard.Detach] to goroutines that outlive the handler. The handler's own ctx
//     has ended by then and holds no key.
//   - Give a task whose conflicts matter at least one retry, and a timeout that is longer than its
//     work and its wait. On the last attempt a conflict waits until shortly before the deadline. If
//     the key is still busy, asynq archives the task with an error that names the holder.
//   - Turn on [Parking] if one key can have many tasks. Without it each task that waits occupies a
//     worker for up to Terms.Wait. With or without it, a task on its last attempt (with MaxRetry(0)
//     the only one) waits up to its deadline: 30 min unless asynq.Timeout sets another one.
//   - Keep records for longer than the time in which the producer, a retry or an operator may bring
//     the same work again.
//   - Set [OnceOptions].Fingerprint if a key with another payload is a mistake, such as another
//     amount of the same payment. By default such a task completes without a run, and the Observer
//     gets event.PayloadDiffers.
//   - Keep results small. If a result is above MaxResult, Once records only that there was one.
//   - Do not put a middleware with Skip inside a Once, because Once would record the skipped run as
//     done.
//   - Do not enqueue a task with asynq.Unique, or with its own ID, from its own handler: asynq
//     refuses it.
//
// Most of these have an example whose name ends in incorrect.
//
// # Testing
//
// A middleware needs no asynq server: wrap the handler, and call ProcessTask with a task.
// [ByTaskID] and [ByQueue] are exceptions, because they need the ctx of a server. locktest.New
// returns a Locker for a test. locktest.Hold makes a key busy, locktest.Abandon leaves a once key
// abandoned, and locktest.Lose ends the lease of a handler. Look up what Once recorded with
// idempotency.Lookup and [OnceKey].
//
// # Order
//
// From the outside in: recover, tracing, guards, timeout.
//
//	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{
//		Fingerprint: asynqmw.Fields("/amount", "/currency"),
//	})
//	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
//	limited := asynqmw.Limited(locks, asynqmw.ByType(), 10, asynqmw.LimitedOptions{})
//	mux := asynq.NewServeMux()
//	mux.Use(recovered, asynqtrace.Middleware(asynqtrace.Options{}))
//	mux.Handle("charge", limited(account(payment(charge))))
//
// The reasons for this order:
//
//   - A recover middleware belongs outside of the guards. You can omit it, because asynq recovers
//     panics itself. If it is inside, a guard sees that the handler has returned. Then Once records
//     half of a run if the recover middleware returns nil, and with guard.AtMostOnce always.
//   - Tracing belongs outside of the guards, so that the span of the delivery contains the wait.
//   - Your own timeout belongs inside, so that the wait for the key does not shorten the time of
//     the handler. It must wait until its handler has returned. If it gives up on the handler, as
//     http.TimeoutHandler does, the key is released while the handler still runs.
//   - Among the guards, Exclusive belongs outside and Once inside, because a task that waits for
//     its account has not begun. With Once outside, the keys of all tasks that wait are abandoned
//     if their worker is killed, and with guard.AtMostOnce work that never began is refused.
//   - A Once inside does not wait for another run of its key, unless Terms.Wait is set: the task
//     gives the account back and comes back later. On its last attempt it waits, but at most for a
//     lease (or Terms.Wait, if that is longer), and then asynq archives it. A ticket for the
//     account (Adopt) is used up by then.
//   - Nest the guards in the same order in all programs, or use one [ExclusiveAll] for several keys
//     of Exclusive. Programs with different orders refuse each other's tasks more often.
//
// # Shutdown
//
//	srv.Shutdown()        // takes no more tasks, and waits up to Config.ShutdownTimeout (8 s) for handlers
//	locks.Close(ctx)      // waits until ctx ends for handlers that have not returned
//	rdb.Close()
//
// asynq's Run calls Shutdown.
//
//   - A worker that shuts down keeps its leases while its handlers run, and releases each one when
//     its handler returns. The next waiter gets the key at once.
//   - At the end of ShutdownTimeout asynq puts the tasks of the other handlers back into their
//     queues and cancels their ctx. If another server gets such a task, its key is busy: the task
//     waits or comes back later, and uses up no retry.
//   - If the handler then still returns in time, Once records the result, and the task completes
//     without another run.
//   - If the ctx of Close ends first, leases are no longer renewed. Each key becomes free at the
//     end of its lease, not earlier, because its handler may still run.
//   - Do not call Close before Shutdown. Tasks that asynq still delivers would be refused, and each
//     refusal uses up a retry.
//
// # Parking
//
//	srv := asynq.NewServer(redis, asynqmw.Configure(asynq.Config{}, asynqmw.Parking{Inspector: asynq.NewInspector(redis)}))
//
// With [Parking] at most a third of the workers of a server (at least one) wait for busy keys.
// Every other task whose key is busy is parked: asynq stores it as a retry, and its worker takes
// another task. No retry is used up. The parked tasks of a key are stored beside the key, in the
// order of their first parking. A hold wakes the next ones when it begins, and again when it ends
// and no call waits for the key. A woken task goes to the end of its queue. Tasks that are woken
// together may change places.
//
//   - Parking applies to all guards of this package with [RetryLater]. A task on its last attempt
//     is not parked, because asynq would archive it: it waits in its worker, beyond the third if
//     necessary.
//   - A parked task of Exclusive does not keep tasks of [Shared] out, unlike one that waits in its
//     worker. If readers arrive without a pause, do not park the writers.
//   - A parked task also comes back without being woken. Its delay is a lease (or the rest of
//     MinHold), plus the mean hold time of each task before it, plus up to a quarter of the sum.
//     The rest of MinHold counts for at most 10 min, and so do all tasks before it together. A task
//     with a deadline comes back before that deadline.
//   - A waking process runs a task only if asynq's Inspector says that the task is in retry, with
//     the error of parking on this key. Between this lookup and the run, the task may end, because
//     it came back by itself or another process woke it. If it has a Retention, asynq then delivers
//     it again. So a guard does not run a task that was parked on its key and completed less than
//     30 s ago, even if an operator runs it by hand, and the Observer gets event.RerunSkipped. If
//     the delivery comes later, the task runs again. Use Once for such tasks.
//   - A task of [ExclusiveAll] is parked on the key that is busy. When it is woken, another of its
//     keys may be busy. Then it gives up its place on the first key, and the next task of that key
//     is woken. So a task with several keys that are often busy may be parked several times.
//   - A key has at most 10,000 parked tasks. A further task is refused as without parking.
//   - The TTL of asynq.Unique goes on while a task is parked. Choose a TTL that is longer than the
//     wait.
//   - If asynq finds no pending task, it looks again after TaskCheckInterval (1 s). If that is
//     longer than the work of the tasks that may wait for a key, the key is idle in between. This
//     is reported as event.Misconfigured, once for a server, with a better value.
//   - If asynq servers with different Redis servers share keys, each Redis needs its own
//     Parking.Deployment.
//
// docs/workers.md has the measurements.
//
// # Tickets
//
// A handler under Exclusive or Once may hand its hold over to a task that it enqueues:
//
//	ticket, err := guard.Ticket(ctx, "account:42", time.Hour)
//	…
//	t := asynq.NewTaskWithHeaders("settle", payload, map[string]string{asynqmw.HeaderTicket: ticket})
//	_, err = client.EnqueueContext(guard.Detach(ctx), t)
//
// The new task, under a middleware with Adopt, begins at once under the same hold of the key, with
// a greater fencing token. No other task or process gets the key in between.
//
//   - asynq may deliver a task twice. Then one delivery adopts the hold, and the other acquires the
//     key like any other task. The same applies to a retry: the first run has used the ticket.
//   - If Enqueue fails, adopt the ticket in the handler and release the lease. Otherwise the key is
//     held until the end of the ticket.
//   - The ticket is not encrypted. All programs with access to the Redis of asynq can read it, and
//     so can users of asynqmon and of every other tool that shows headers of tasks. A reader that
//     can also send commands to the Redis of the locks can take the hold. It could delete the key
//     there just as well.
//
// # Schedules
//
// If several of asynq's schedulers run, each of them enqueues every task. [Ticks] enqueue a task
// once for each tick, even if they run in several processes. [EnqueueTick] does the same for your
// own cron.
package asynqmw
