package redistest

import "go.uber.org/goleak"

// PoolProbes makes goleak ignore the goroutine in which go-redis dials a server that was
// unavailable. That goroutine ends up to a second after its client was closed, and goleak waits for
// less than half a second.
func PoolProbes() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
