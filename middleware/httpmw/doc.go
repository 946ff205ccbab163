// Package httpmw makes HTTP requests with an Idempotency-Key safe to repeat. It also runs one
// request, or at most n requests, at a time for a key such as an account.
//
// This server answers a repeated order without running the handler again:
//
//	package main
//
//	import (
//		"fmt"
//		"log"
//		"net/http"
//		"time"
//
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/middleware/httpmw"
//	)
//
//	func main() {
//		locks, err := lockcore.NewMemory(lockcore.Options{}) // several processes: lockcore.New
//		if err != nil {
//			log.Fatal(err)
//		}
//		tenant := func(*http.Request) (string, error) { return "acme", nil } // from the credentials
//		create := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
//			fmt.Fprintln(w, "order of", time.Now())
//		})
//		mux := http.NewServeMux()
//		mux.Handle("POST /orders", httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(create))
//		log.Fatal(http.ListenAndServe("localhost:8080", mux))
//	}
//
// Send the request twice, and both responses have the same time:
//
//	curl -d tea -H 'Idempotency-Key: 7' localhost:8080/orders
//
// The middlewares work with any router that takes an http.Handler, such as http.ServeMux and chi:
//
//   - [Idempotent] runs the handler once for each Idempotency-Key. A repeat gets the recorded
//     response. It guards POST and PATCH, see IdempotentOptions.Methods.
//   - [Exclusive] runs one request at a time for each key, such as an account.
//   - [Shared] runs readers of a key beside each other, but not beside requests of Exclusive.
//   - [Limited] and [LimitedFunc] run at most n requests at a time for each key.
//
// If a handler needs Idempotent and another one of these, put Idempotent outside. docs/http.md
// says what that costs if a process is killed.
//
// Idempotent follows draft-ietf-httpapi-idempotency-key-header. Where the draft leaves a choice, it
// follows Stripe (https://docs.stripe.com/api/idempotent_requests), except that it does not record
// a 5xx by default. It departs from the draft in one point: a repeat that arrives while the first
// request runs waits up to Terms.Wait before it gets 409. With lockcore.NoWait it gets 409 at once,
// as the draft recommends.
//
// # Guarantees
//
// The guarantees of Idempotent apply to requests with the same scope, method, path and key, within
// IdempotentOptions.Keep, and as long as Redis keeps what it has acknowledged:
//
//   - No two handlers run at the same time.
//   - After a response was recorded, no handler runs again.
//   - Each replay has the recorded status, headers and body. IdempotentOptions.OmitHeaders lists
//     the headers that are not recorded.
//   - The record is stored before the response is sent. So a client that received a success gets it
//     again when it repeats the request. Limits has the exceptions.
//   - Requests of two scopes, or of two paths, never share a record.
//
// The guarantees of Exclusive, Shared and Limited are those of package guard.
//
// # Limits
//
//   - If a process dies between the effect of the handler and the record of the response, the
//     outcome is unknown. IdempotentOptions.Mode decides what happens then. By default the next
//     request runs the handler again. With guard.AtMostOnce it is refused until an operator clears
//     the key or Keep (at least 100 days) is over. If neither is enough, pass the result of [Key]
//     downstream, or write it in the transaction of the effect.
//   - If Redis does not reply for more than about a second while a response is being recorded, the
//     response is sent nevertheless, and the record is stored asynchronously.
//   - A response that was streamed is not recorded. Its repeat is refused and does not run. A
//     response is streamed, which means sent before it is complete, if it exceeds MaxResponse, or
//     if the handler flushes a text/event-stream.
//   - A request that waits for its key occupies a connection and a goroutine. At most 64 requests
//     of a process wait for one key (Terms.MaxWaiting). Further requests get 409 (under Limited
//     429) with Retry-After at once, and send no command to Redis. So one hot key cannot occupy a
//     server. The bound is for one key and one process: with ten hot keys up to 640 requests wait.
//     docs/performance.md has measurements.
//
// # What you must do
//
//   - Put Idempotent behind authentication and rate limits, and in front of the business handler.
//     It records the responses of all code behind it.
//   - Do not let code in front of Idempotent read the body.
//   - Do not put http.TimeoutHandler behind Idempotent, because it returns while its handler still
//     runs.
//   - The handler must run and write its response before the http.Handler behind these middlewares
//     returns. With gin, echo and fiber, that needs the adapters of docs/frameworks.md. echo's
//     WrapMiddleware writes the response of an error later: Idempotent detects and reports that.
//     fiber's adaptor.HTTPMiddleware runs the handler later. That cannot be detected: Exclusive
//     guards nothing, and Idempotent records an empty 200.
//   - Write a [Scope] that names the caller.
//   - Give two APIs with the same scopes and paths on one Redis different Prefixes, because the
//     host is not part of the key.
//   - For cross-origin clients, name Idempotent-Replayed in Access-Control-Expose-Headers.
//   - Let the handler stop when its ctx ends. This ctx ends before the lease can. The disconnect of
//     the client does not cancel it.
//
// docs/http.md has the details, and docs/problems.md explains each refusal.
//
// # Testing
//
// Tests of your handlers need httptest and package locktest.
package httpmw
