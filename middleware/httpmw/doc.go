// Package httpmw makes HTTP requests with an Idempotency-Key safe to repeat. It also runs one
// request, or at most n requests, at a time for a key such as an account, or lets them begin at a
// rate.
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
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
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
// docs/http.md leads from here to a service that takes payments. docs/http-reference.md has each
// case, and docs/problems.md explains the error responses.
//
// These middlewares wrap any http.Handler, for example behind http.ServeMux or chi:
//
//   - [Idempotent] runs the handler once for each Idempotency-Key, and answers a repeat with the
//     recorded response.
//   - [Exclusive] runs one request at a time for each key, such as an account.
//   - [Shared] runs readers of a key at the same time, but never while a request of Exclusive runs.
//   - [Limited] and [LimitedFunc] run at most n requests at a time for each key.
//   - [Throttled] and [ThrottledFunc] let the requests of each key begin at a rate, and answer
//     others with 429.
//
// The header follows draft-ietf-httpapi-idempotency-key-header-07, an Internet-Draft of October
// 2025 that expired on April 18, 2026.
//
// # Guarantees
//
// Among requests with the same scope, method, path and key, within IdempotentOptions.Keep, and as
// long as Redis keeps what it has acknowledged:
//
//   - No two handlers run at the same time.
//   - After a response was recorded, no handler runs again.
//   - A replay has the recorded status, headers and body, except the headers that
//     IdempotentOptions.OmitHeaders lists.
//   - The record is stored before the response is sent, so a client that got a success gets it
//     again, except as Limits says.
//   - Requests of two scopes, or of two paths, never share a record.
//
// The guarantees of Exclusive, Shared, Limited and Throttled are the same as in package guard.
//
// # Limits
//
//   - If a process dies between the effect and the record, the outcome is unknown. By default the
//     next request runs the handler again; IdempotentOptions.Mode can prevent that. So pass [Key]
//     to the system that has the effect.
//   - If Redis does not reply for about a second while a response is recorded, the response is sent
//     nevertheless, and the record follows.
//   - A streamed response is not recorded, see [Idempotent]. Its repeat gets 409.
//   - A request that waits occupies a connection and a goroutine. At most 64 requests of a process
//     wait for one key (Terms.MaxWaiting), so that one hot key cannot occupy a server. Further ones
//     get 409, or 429 under Limited and Throttled, with Retry-After at once, and cost no command.
//
// # What you must do
//
//   - Put Idempotent behind authentication and rate limits, and in front of the business handler.
//     docs/http.md has the whole chain.
//   - Do not let code in front of it read the body.
//   - Do not put http.TimeoutHandler behind it, because that returns while its handler still runs.
//   - Write the response before the http.Handler behind these middlewares returns. gin, echo and
//     fiber need the adapters of docs/frameworks.md for that.
//   - Write a [Scope] that names the caller, and give two APIs on one Redis different Prefixes,
//     because the host is not part of the key.
//   - Let the handler stop when its ctx ends, which is before the lease can end. The client's
//     disconnect does not cancel it under Idempotent.
package httpmw
