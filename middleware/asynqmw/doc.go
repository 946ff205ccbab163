// Package asynqmw makes an asynq task run once, or run alone, as a decorator of its handler:
//
//	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.Options{})
//	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
//
//	mux := asynq.NewServeMux()
//	mux.Handle("charge", payment(account(charge)))
//	srv := asynq.NewServer(redis, asynqmw.Configure(asynq.Config{}))
//
// Unique (asynq's own) = not twice in the queue. [Exclusive] = not twice at the same time. [Once] = not twice within Keep.
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
// little and comes back later without using up a retry, see [Busy]. A late success under Once is recorded, so that the
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
// # What you must do
//
//   - Pass the configuration of the server through [Configure]. Without it each conflict uses up a retry; that is noticed
//     and reported once as lockcore.Misconfigured.
//   - Wrap per handler. mux.Use applies to every task type, so use it with [ByTaskID] only.
//   - Once outside, Exclusive inside: a replay then does not wait for the account. Do not put Skip inside a Once: the Once
//     would record a run that was skipped.
//   - Give a task whose conflicts matter at least one retry, and a timeout that is longer than its work.
//   - Close in this order: srv.Shutdown, locks.Close, rdb.Close.
package asynqmw
