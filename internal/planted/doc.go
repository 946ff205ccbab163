// Planted puts known mistakes into the code, one at a time, and demands that a certain test finds each of them: the tests are as good
// as what they find. The product's code stays as it is, for the changed files are laid over it (go test -overlay), embedded scripts
// too.
//
//	go run ./internal/planted            all
//	go run ./internal/planted -fast      those that stand for the rest
//	go run ./internal/planted -only watchdog-one-error,no-token-floor
//	go run ./internal/planted -list
//
// First each test has to pass on the code as it is. Then, for each mistake, the test has to fail: not the build, not by running out
// of time, and not by being skipped. A mistake that no longer fits the code, because the text that it replaces is not there exactly
// once, fails too; the package's own tests see that with every run of the suite.
package main
