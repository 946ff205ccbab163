// Package holdfast runs Go jobs once, or alone, and shows who holds a key: decorators for job
// workers, HTTP handlers, cron jobs and plain functions, on Redis. The code is in these packages:
//
//   - guard: Exclusive and Once around any function
//   - middleware/asynqmw, middleware/httpmw: the same around asynq handlers and net/http handlers
//   - middleware/cronmw: cron jobs on several instances, each tick once
//   - lockcore: the leases under these packages: reentrant, renewed by a watchdog, with a wait
//     queue and fencing tokens
//   - idempotency: what a done key remembers
//   - sqlonce: work that happens once, in the SQL transaction that has its effect
//   - tracing: spans and metrics with OpenTelemetry; tracing/asynqtrace carries traces through
//     asynq's tasks
//   - fence: for the resource: refuses writes of old holds
//   - doctor: Check reports what is wrong with a Redis, and List yields all keys
//   - locktest: a Locker for your tests, and the conformance test for your Redis
//   - cmd/holdfast: the command for operators: runs the doctor, and shows who holds a key
//
// Composed, from the outside in:
//
//	your recover ▸ your tracing ▸ Once ▸ Exclusive ▸ your timeout ▸ your handler
package holdfast
