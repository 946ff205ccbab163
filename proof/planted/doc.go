// Planted puts known mistakes into the code, one at a time. A named test must find each of them.
// The code of the product does not change: go test -overlay replaces the changed files, also
// embedded scripts, for one build.
//
//	go -C proof run ./planted -root ..            all mistakes
//	go -C proof run ./planted -root .. -only watchdog-one-error,no-token-floor
//	go -C proof run ./planted -root .. -list
//
// Each named test must pass on the unchanged code, and fail with the mistake. A broken build, a
// timeout and a skipped test do not count as a failure.
//
// # Markers
//
// A marker is a comment that names a place in the product's code, at the end of a line or alone
// above it:
//
//	g.timer = time.AfterFunc(left, g.expire) //planted:local-timer
//
//	-- planted:token-floor
//	local t = string.format('%.0f', math.max(f + 1, now))
//
// A mistake names the place and an operation, never a file or the text of the line. So renamed
// identifiers, rewritten expressions and code that moves to another file keep the mistake, as long
// as the marker stays with the same step. Several mistakes may use one place. A line has at most
// one marker; in Go the marker is a comment alone, not the end of another comment.
//
// The quick tests of this package fail if the marker of a mistake is missing, exists twice, or
// marks code that the operation does not fit. They also fail if no mistake uses a marker. The full
// level also compiles the code with each mistake.
//
// # How to plant a mistake
//
//  1. Put a marker at the place. Its name says what the code does there, not what the mistake is.
//
//  2. Add a mistake to leases.go, scripts.go, shares.go, rates.go, rules.go, rows.go, waits.go, above.go or quorum.go: its
//     name, one sentence, the edits, the package and the test. Use several edits only if another
//     safeguard of the code hides each of them alone.
//
//  3. Choose the operation that depends on the fewest names:
//
//     skip                    the statement does not run
//     never, always           the condition is false, true; it is not evaluated
//     operandNever(i), operandAlways(i)  the same for operand i of a chain of && or ||
//     operand(i, text)        operand i becomes text
//     value(text)             the expression becomes text
//     arg(i, text)            argument i of the call becomes text
//     call(text)              the call becomes text, in which $0, $1 … are its arguments
//     stmt(text)              the statement becomes text
//     before(text), after(text)  text is added
//
//     In text, $ is what it replaces, and $(NAME) is the statement at another place.
//
//  4. Run go -C proof test ./planted, then go -C proof run ./planted -root .. -only NAME.
//
// In Go the operations apply to the first node that begins on the marked line: the statement, its
// condition, result or right-hand side, or its first call. If an operand or an argument has its own
// line, they apply to it. In Lua they apply to the line, which must hold a whole statement or the
// condition of an if. There value applies to that condition; arg and call are not available.
package main
