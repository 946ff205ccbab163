package redistest

import "go.uber.org/goleak"

// PoolProbes lets goleak pass over the probe of go-redis for a server that was away. The probe ends up to a second after
// its client was closed, and goleak waits for less than half a second.
func PoolProbes() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
