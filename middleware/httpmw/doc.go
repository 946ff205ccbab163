// Package httpmw makes POST and PATCH requests (see IdempotentOptions.Methods) that carry an
// Idempotency-Key safe to repeat: the handler runs once, and a repeat of the request gets the
// answer that was recorded. It works with any router of net/http's shape, such as http.ServeMux and
// chi.
//
//	orders := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(create))
//	mux.Handle("POST /orders", orders)
//
// [Exclusive] runs one request at a time for each key, such as an account. Where both are used Idempotent stands outside.
//
// A request that waits for its key occupies a connection and a goroutine. At most 64 requests of a process wait for one key
// (Terms.MaxWaiting). Further ones are answered 409 with Retry-After at once and cost no command of Redis. So one hot key
// cannot occupy a server. The bound is for one key and one process: with ten hot keys up to 640 requests wait. docs/performance.md
// has measurements.
//
// It follows draft-ietf-httpapi-idempotency-key-header and, where that is silent, Stripe's practice
// (https://docs.stripe.com/api/idempotent_requests). One departure: a repeat that arrives while the first request runs
// waits up to Terms.Wait before it is answered 409. With lockcore.NoWait it is answered at once, as the draft requires.
//
// # Guarantees
//
// Among requests of one scope, method, path and key, within IdempotentOptions.Keep and as long as
// Redis keeps what it acknowledged: no two handlers run at the same time; after an answer was
// recorded no handler runs again; every replay has the recorded status, headers and body (which
// headers are recorded: see IdempotentOptions.OmitHeaders). The record is stored before the answer
// is sent, so that a client that saw a success can always have it again. Requests of two scopes, or
// of two paths, never meet.
//
// # What it cannot promise
//
// A process that dies between the handler's effect and its record leaves the outcome unknown.
// IdempotentOptions.Mode chooses: by default the next request runs the handler again, with
// guard.AtMostOnce it is refused until an operator clears the key. Pass [Key] downstream, or write
// it in the transaction of the effect, where neither is enough. If Redis fails for more than about
// a second just when an answer is to be stored, the answer is sent all the same and storing goes on
// in the background. An answer that was streamed, or was too large, is not kept: its repetition is
// refused, not run.
//
// # What you must do
//
// Install Idempotent behind authentication and rate limits and in front of the business handler: what stands behind it is
// recorded too. Nothing in front of it may use up the body, and no http.TimeoutHandler may stand behind it: that returns
// while the handler runs on. Give it a scope that names the caller. The host is not part of the key: two APIs with the same scopes and
// paths on one Redis need a Prefix each. Let cross-origin clients see the header Idempotent-Replayed by
// Access-Control-Expose-Headers. The handler gets a ctx that the client's disconnect does not cancel; it must still obey
// it, for it ends before the lease can. docs/payments.md says all this at length, docs/problems.md what each refusal means.
//
// # Testing
//
// See package locktest; httptest is all that a test of your own handlers needs besides.
package httpmw
