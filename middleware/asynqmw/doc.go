// Package asynqmw makes an asynq task run once, or run alone, as a decorator of its handler:
//
//	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
//	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{
//		Fingerprint: asynqmw.Fields("/amount", "/currency"),
//	})
//
//	mux := asynq.NewServeMux()
//	mux.Handle("charge", payment(account(charge)))
//	srv := asynq.NewServer(redis, asynqmw.Configure(asynq.Config{}))
//
// Unique (asynq's own) = not twice in the queue. [Exclusive] = not twice at the same time. [Once] = not twice within Keep.
// [Limited] = at most n at the same time. [Shared] = not beside an Exclusive of the same key.
//
// # Why
//
// At a task's deadline, when its lease is lost and at a shutdown asynq gives up on the handler, but cannot stop it. The
// retry has the same task ID and starts beside the abandoned one; whatever that returns later is thrown away. So a
// handler that ignores its ctx runs several times at once and ends archived, although every run returned nil.
//
// # Guarantees
//
// The key belongs to one execution of the handler, never to the task ID, and is held until the handler's goroutine has
// returned, also after asynq has moved on. A retry that finds the key busy is a conflict, not a failure: it waits a
// little and comes back later without using up a retry, see [ConflictPolicy]. A late success under Once is recorded, so that the
// retry is a no-op and the task ends as completed. The handler's ctx is canceled before the lease can end, by asynq's
// deadline and by asynq's cancellation. A panic frees the key and passes on.
//
// # What it cannot promise
//
// A process that dies between the effect and its record leaves that in doubt: [OnceOptions].Mode chooses. When the
// attempt that timed out was the last one, asynq has archived the task before the handler returned; the record then says
// done, and running the task again is a no-op. A run that returned nil although its lease was lost on the way is
// answered with nil, for a retry cannot undo it; the Observer hears lockcore.Lost.
//
// # Order
//
// From the outside in: recover, tracing, guards, timeout.
//
//	mux.Use(recovered, asynqtrace.Middleware(asynqtrace.Options{}))
//	mux.Handle("charge", payment(account(limited(charge))))
//
// A recover of your own stands outside, or none: asynq has one. Inside, the guard takes a panic for a return, so that a half
// done run is recorded. Tracing stands outside of the guards, so that the wait is below the delivery's span. A timeout of your
// own stands inside, so that the time in line is not taken from the handler's, and must wait for its handler to return: one
// that gives up on it, as http.TimeoutHandler does, would give the key back while the handler runs.
//
// Among the guards Once stands outside, Exclusive inside: a replay then does not wait for the account. With several
// Exclusive, always in the same order, or with one [ExclusiveAll].
//
// # Shutdown
//
//	srv.Shutdown()        // takes no more tasks, and waits up to Config.ShutdownTimeout (8 s) for handlers
//	locks.Close(ctx)      // waits until ctx ends for those that have not returned
//	rdb.Close()
//
// A worker that is told to stop keeps its leases while its handlers run, and gives each back as its handler returns: the next
// worker in line has the key at once. At the end of ShutdownTimeout asynq puts the tasks of the rest back and cancels their
// ctx; on another server such a task finds its key busy and waits, or comes back later, without a retry used up. Where
// the handler returns in time after all, Once records it, and the task completes without another run. Where the bound of
// Close ends first, nothing is renewed any more, and each key is free at the end of its lease, not sooner, for its
// handler may still run. Close before Shutdown would turn away what asynq still hands out, and use up retries for it.
//
// A worker that is killed has its keys for at most one lease, and its own tasks until asynq notices, which takes 60 to 120 s.
//
// # What you must do
//
//   - Pass the configuration of the server through [Configure], after everything else has been set. Without it each conflict
//     uses up a retry; that is noticed, and reported as lockcore.Misconfigured, once by each middleware.
//   - Wrap per handler. mux.Use applies to every task type, so use it with [ByTaskID] only.
//   - Make keys of what must not meet: neither broader, for a type's tasks then wait for each other, nor narrower, for a payload with
//     a time in it is another one each time.
//   - Look at ctx in the handler, and return context.Cause(ctx) when it has ended. With nil, Once records half a run as done.
//   - Hand [guard.Detach]'s ctx to what outlives the handler: the handler's own has ended by then, and holds nothing.
//   - Give a task whose conflicts matter at least one retry, and a timeout that is longer than its work and its wait. On the
//     last attempt a conflict waits up to the deadline; if the key is still busy the task is archived, with the holder's name.
//   - Turn on [Parking] if one key can have many tasks. Without it each task that waits occupies a
//     worker for up to Terms.Wait. With or without it, a task on its last attempt (with MaxRetry(0)
//     the only one) waits up to its deadline: 30 min unless asynq.Timeout sets another one.
//   - Keep records for longer than the producer, a retry or an operator may bring the same work again.
//   - Set [OnceOptions].Fingerprint where a key with another payload is a mistake, such as another amount of the same payment. By
//     default such a task completes without a run, and the Observer gets guard.PayloadDiffers.
//   - Keep results small: of one above MaxResult only that there was one is known later.
//   - Do not put Skip inside a Once, which would record a run that was skipped; nor enqueue a task with asynq.Unique, or with
//     its own ID, from its own handler, which asynq refuses.
//
// Most of these have an example whose name ends in incorrect.
//
// # Parking
//
//	srv := asynq.NewServer(redis, asynqmw.Configure(asynq.Config{}, asynqmw.Parking{Inspector: asynq.NewInspector(redis)}))
//
// With [Parking] at most a third of the workers of a server (at least one) wait for busy keys. Every
// other task whose key is busy is parked: asynq stores it as a retry, and its worker takes another
// task. No retry is used up. The parked tasks of a key are stored beside the key, in the order of
// their first parking. A hold wakes the next ones when it begins, and again when it ends and no call
// waits for the key. A woken task goes to the end of its queue. Tasks that are woken together may
// change places.
//
//   - Parking applies to all guards of this package with [RetryLater]. A task on its last attempt is not
//     parked, because asynq would archive it: it waits in its worker, beyond the third if necessary.
//   - A parked task of Exclusive does not keep tasks of [Shared] out, unlike one that waits in its
//     worker. If readers come without a pause, do not park the writers.
//   - A parked task does not depend on being woken. It comes back by itself after a lease (or the
//     rest of MinHold) plus the mean hold time of each task before it, and up to a quarter of that
//     more. Both parts are bounded: MinHold and the tasks before it add at most 10 min each. A task
//     with a deadline comes back before it.
//   - A waking process runs a task only if asynq's Inspector says that the task is in retry, with the
//     error of parking on this key. A task that comes back by itself may end between this lookup and
//     the run. If it has a Retention, it then runs again. A task with a Retention that comes back
//     within 500 ms is not woken. Use Once for such tasks.
//   - A task of [ExclusiveAll] is parked on the key that is busy. If it is woken and finds another of its keys busy, it
//     gives up its place on the first key, and the next task of that key is woken. So a task with several keys that are
//     often busy may be parked several times.
//   - A key has at most 10,000 parked tasks. A further task is refused as without parking.
//   - The TTL of asynq.Unique goes on while a task is parked. Choose a TTL that is longer than the wait.
//   - If asynq finds no pending task, it looks again after TaskCheckInterval (1 s). If that is longer
//     than the work of the tasks that may wait for a key, the key is idle in between. This is reported
//     as lockcore.Misconfigured, once for a server, with a better value.
//   - If asynq servers with different Redis servers share keys, each Redis needs its own
//     Parking.Deployment.
//
// docs/workers.md has the measurements.
//
// # Tickets
//
// A handler under Exclusive or Once may hand its hold to a task that it enqueues:
//
//	ticket, err := guard.Ticket(ctx, "account:42", time.Hour)
//	…
//	t := asynq.NewTaskWithHeaders("settle", payload, map[string]string{asynqmw.HeaderTicket: ticket})
//	_, err = client.EnqueueContext(guard.Detach(ctx), t)
//
// The new task, under a middleware with Adopt, begins at once under the same hold of the key, with a
// greater fencing token. No other task or process gets the key in between.
//
//   - asynq may deliver a task twice. Then one delivery adopts, and the other acquires the key like any
//     other task. The same applies to a retry: the first run has used the ticket.
//   - If Enqueue fails, adopt the ticket in the handler and release the lease. Otherwise the key is
//     kept until the end of the ticket.
//   - The ticket is not encrypted. All programs with access to the Redis of asynq can read it, and so
//     can users of asynqmon and of every other tool that shows headers of tasks. A reader that can also
//     send commands to the Redis of the locks can take the hold. It could delete the key there just as
//     well.
//
// # Schedules
//
// Several of asynq's schedulers enqueue each task several times. [Ticks] enqueue it once a tick, wherever and however often they run;
// [EnqueueTick] does it for a cron of your own.
package asynqmw
