//go:build race

package sim_test

import "runtime"

// With more than one thread the race detector itself ends with a fault: two threads that run timers of one
// bubble at the same time give it the same context. That is a bug of Go 1.26, go.dev/issue/78156.
func init() { runtime.GOMAXPROCS(1) }
