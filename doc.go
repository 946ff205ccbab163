// Package holdfast makes a job run once, run alone, and shows who holds it: decorators for Go job workers, HTTP handlers,
// cron jobs and plain functions, on Redis. It holds no code; these packages do:
//
//   - guard: Exclusive and Once around any function
//   - middleware/asynqmw, middleware/httpmw: the same around asynq handlers and net/http handlers
//   - middleware/cronmw: cron jobs on several instances, each tick once
//   - lockcore: the lease they stand on: reentrant, kept by a watchdog, with waiting in turns and fencing tokens
//   - idempotency: what a done key remembers
//   - tracing: spans and metrics with OpenTelemetry; tracing/asynqtrace carries traces through asynq's tasks
//   - fence: for the side of the resource: writes of old holds are refused
//   - doctor: Check, what is wrong with a Redis, and List, all keys
//   - locktest: for your tests, and the conformance suite for your Redis
//   - cmd/holdfast: the doctor, and who holds what, from a shell
//
// Composed, from the outside in:
//
//	your recover ▸ your tracing ▸ Once ▸ Exclusive ▸ your timeout ▸ your handler
package holdfast
