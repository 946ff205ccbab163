package schedule

// Server runs scripts on a Redis whose clock the caller sets.
type Server interface {
	// Run runs the script at the time now, in µs. A reply is nil, an int64, a string or a list.
	Run(now int64, script string, keys, args []string) (any, error)
	// Keys returns the TTLs of all keys, in µs. The TTL of a key without one is 0.
	Keys(now int64) map[string]int64
	// Flush removes all keys.
	Flush()
	// OnPublish sets the function that receives each PUBLISH, and returns the number of receivers.
	OnPublish(func(channel, message string) int64)
}
